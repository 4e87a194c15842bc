import type { CreateContainerRequest, ExecProcessRequest } from '../../../src/gen/agent.ts'
import type { DeepPartial, Linux, Mount, Process, Spec } from '../../../src/gen/oci.ts'

export interface ProcessOptions {
  /** Gives the process a terminal of 33 rows and 77 columns. */
  readonly terminal?: boolean
  readonly ports?: Partial<Pick<ExecProcessRequest, 'stdinPort' | 'stdoutPort' | 'stderrPort'>>
  /** NAME=value entries that follow PATH. */
  readonly env?: readonly string[]
  /** Replaces CAP_KILL and CAP_SYS_CHROOT in the three capability sets that root needs. */
  readonly capabilities?: readonly string[]
  readonly process?: DeepPartial<Process>
}

type Rest = Pick<
  DeepPartial<CreateContainerRequest>,
  'storages' | 'devices' | 'sharedMounts' | 'sandboxPidns'
>

export interface ContainerOptions extends ProcessOptions, Rest {
  readonly mounts?: readonly DeepPartial<Mount>[]
  readonly linux?: DeepPartial<Linux>
  readonly spec?: DeepPartial<Omit<Spec, 'Root' | 'Process' | 'Mounts' | 'Linux'>>
}

/** A container with /proc, a tmpfs as /dev, and mount, IPC, UTS and pid namespaces; its programs are in /bin of `root`. */
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

export function execProcessRequest(
  containerId: string,
  execId: string,
  args: readonly string[],
  { ports, ...options }: ProcessOptions = {},
): DeepPartial<ExecProcessRequest> {
  return { containerId, execId, ...ports, process: processRequest(args, options) }
}

export function bind(source: string, destination: string): Mount {
  return { source, destination, type: 'bind', options: ['rbind', 'rw'] }
}

const MOUNTS: readonly DeepPartial<Mount>[] = [
  { destination: '/proc', type: 'proc', source: 'proc', options: ['nosuid', 'noexec', 'nodev'] },
  { destination: '/dev', type: 'tmpfs', source: 'tmpfs', options: ['nosuid', 'mode=755'] },
  { destination: '/dev/pts', type: 'devpts', source: 'devpts', options: ['newinstance', 'ptmxmode=0666'] },
]

type Undefinable<Options> = { readonly [Key in keyof Options]?: Options[Key] | undefined }

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
