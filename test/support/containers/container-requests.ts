import type { CreateContainerRequest, ExecProcessRequest } from '../../../src/gen/agent.ts'
import type { DeepPartial, Linux, Mount, Process, Spec } from '../../../src/gen/oci.ts'

/** What a process is like besides what it runs. */
export interface ProcessOptions {
  /** On a terminal of 33 rows and 77 columns. */
  readonly terminal?: boolean
  /** Ports of the host for its streams. */
  readonly ports?: Partial<Pick<ExecProcessRequest, 'stdinPort' | 'stdoutPort' | 'stderrPort'>>
  /** NAME=value entries after PATH. */
  readonly env?: readonly string[]
  /** In place of CAP_KILL and CAP_SYS_CHROOT; those of the three sets that root needs. */
  readonly capabilities?: readonly string[]
  /** Other fields, in place of the ones that a process is given. */
  readonly process?: DeepPartial<Process>
}

/** Fields of the request that are not part of the specification. */
type Rest = Pick<
  DeepPartial<CreateContainerRequest>,
  'storages' | 'devices' | 'sharedMounts' | 'sandboxPidns'
>

/** What a container is like besides its root and what it runs. */
export interface ContainerOptions extends ProcessOptions, Rest {
  /** Mounts after those of every container. */
  readonly mounts?: readonly DeepPartial<Mount>[]
  /** Fields of `Linux`, in place of the ones that a container is given: namespaces, resources, cgroup path … */
  readonly linux?: DeepPartial<Linux>
  /** Other fields of the specification: hooks, annotations … */
  readonly spec?: DeepPartial<Omit<Spec, 'Root' | 'Process' | 'Mounts' | 'Linux'>>
}

/**
 * A container of few needs: /proc, a tmpfs with terminals as /dev, and mount, IPC, UTS and pid namespaces. Its programs
 * are found in /bin of `root`, as in a busybox root.
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

/** Another process for a container. */
export function execProcessRequest(
  containerId: string,
  execId: string,
  args: readonly string[],
  { ports, ...options }: ProcessOptions = {},
): DeepPartial<ExecProcessRequest> {
  return { containerId, execId, ...ports, process: processRequest(args, options) }
}

/** A folder or file of the agent's side for a container, writable. */
export function bind(source: string, destination: string): Mount {
  return { source, destination, type: 'bind', options: ['rbind', 'rw'] }
}

const MOUNTS: readonly DeepPartial<Mount>[] = [
  { destination: '/proc', type: 'proc', source: 'proc', options: ['nosuid', 'noexec', 'nodev'] },
  { destination: '/dev', type: 'tmpfs', source: 'tmpfs', options: ['nosuid', 'mode=755'] },
  { destination: '/dev/pts', type: 'devpts', source: 'devpts', options: ['newinstance', 'ptmxmode=0666'] },
]

type Undefinable<Options> = { readonly [Key in keyof Options]?: Options[Key] | undefined }

/** The process of either request. */
export function processRequest(
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
