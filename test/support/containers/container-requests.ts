import type { CreateContainerRequest, ExecProcessRequest } from '../../../src/gen/agent.ts'
import type { DeepPartial, Linux, Mount, Process, Spec } from '../../../src/gen/oci.ts'

/** Options of a process besides its command. */
export interface ProcessOptions {
  /** Gives the process a terminal of 33 rows and 77 columns. */
  readonly terminal?: boolean
  /** The host's ports for its streams. */
  readonly ports?: Partial<Pick<ExecProcessRequest, 'stdinPort' | 'stdoutPort' | 'stderrPort'>>
  /** NAME=value entries that follow PATH. */
  readonly env?: readonly string[]
  /** Replaces CAP_KILL and CAP_SYS_CHROOT in the three capability sets that root needs. */
  readonly capabilities?: readonly string[]
  /** Other fields; they override the defaults of a process. */
  readonly process?: DeepPartial<Process>
}

/** Fields of the request that are not part of the specification. */
type Rest = Pick<
  DeepPartial<CreateContainerRequest>,
  'storages' | 'devices' | 'sharedMounts' | 'sandboxPidns'
>

/** Options of a container besides its root and its command. */
export interface ContainerOptions extends ProcessOptions, Rest {
  /** Mounts that follow those of every container. */
  readonly mounts?: readonly DeepPartial<Mount>[]
  /** Fields of `Linux` that override the defaults of a container: namespaces, resources, cgroup path … */
  readonly linux?: DeepPartial<Linux>
  /** Other fields of the specification: hooks, annotations … */
  readonly spec?: DeepPartial<Omit<Spec, 'Root' | 'Process' | 'Mounts' | 'Linux'>>
}

/**
 * A minimal container: /proc, a tmpfs with terminals as /dev, and mount, IPC, UTS and pid namespaces. Its programs are
 * in /bin of `root`, as in a busybox root.
 */
export function createContainerRequest(
  containerId: string,
  root: string,
  args: readonly string[],
  { mounts = [], linux, spec, terminal, ports, env, capabilities, process, ...rest }: ContainerOptions = {},
): DeepPartial<CreateContainerRequest> {
  return {
    containerId,
    ...ports,
    ...rest,
    OCI: {
      Version: '1.0.2',
      ...spec,
      Root: { Path: root },
      Process: processRequest(args, { terminal, env, capabilities, process }),
      Mounts: [...MOUNTS, ...mounts],
      Linux: { Namespaces: ['mount', 'ipc', 'uts', 'pid'].map((Type) => ({ Type })), ...linux },
    },
  }
}

/** A request that adds a process to a container. */
export function execProcessRequest(
  containerId: string,
  execId: string,
  args: readonly string[],
  { ports, ...options }: ProcessOptions = {},
): DeepPartial<ExecProcessRequest> {
  return { containerId, execId, ...ports, process: processRequest(args, options) }
}

/** A writable bind mount of a folder or file on the agent's side. */
export function bind(source: string, destination: string): Mount {
  return { source, destination, type: 'bind', options: ['rbind', 'rw'] }
}

const MOUNTS: readonly DeepPartial<Mount>[] = [
  { destination: '/proc', type: 'proc', source: 'proc', options: ['nosuid', 'noexec', 'nodev'] },
  { destination: '/dev', type: 'tmpfs', source: 'tmpfs', options: ['nosuid', 'mode=755'] },
  { destination: '/dev/pts', type: 'devpts', source: 'devpts', options: ['newinstance', 'ptmxmode=0666'] },
]

type Undefinable<Options> = { readonly [Key in keyof Options]?: Options[Key] | undefined }

/** The process for both kinds of request. */
function processRequest(
  args: readonly string[],
  {
    terminal = false,
    env = [],
    capabilities = ['CAP_KILL', 'CAP_SYS_CHROOT'],
    process,
  }: Undefinable<ProcessOptions>,
): DeepPartial<Process> {
  const set = [...capabilities]
  return {
    Terminal: terminal,
    ...(terminal ? { ConsoleSize: { Height: 33, Width: 77 } } : {}),
    Args: [...args],
    Env: ['PATH=/bin', ...env],
    Cwd: '/',
    Capabilities: { Bounding: set, Effective: set, Permitted: set },
    ...process,
  }
}
