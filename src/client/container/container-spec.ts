import type { Linux, Mount, Process, Spec } from '../../gen/oci.ts'
import { Process as ProcessMessage, Spec as SpecMessage } from '../../gen/oci.ts'

export interface ContainerRequest {
  readonly id: string
  readonly args: readonly string[]
  /** `NAME=value` entries; a later entry wins. */
  readonly env: readonly string[]
  readonly cwd: string
  readonly user: { readonly uid: number; readonly gid: number; readonly additionalGids: readonly number[] }
  /** undefined for no terminal. */
  readonly terminal: { readonly rows: number; readonly columns: number } | undefined
  readonly hostname: string
  /** A path in the guest. */
  readonly rootPath: string
}

const DEFAULT_ENV = ['PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin']

/** The OCI specification of a container, with the defaults of `runc spec`. */
export function containerSpec(request: ContainerRequest): Spec {
  return SpecMessage.fromPartial({
    Version: '1.0.2',
    Process: processOf(request),
    Root: { Path: request.rootPath, Readonly: false },
    Hostname: request.hostname,
    Mounts: MOUNTS.map((mount) => ({ ...mount, options: [...mount.options] })),
    Linux: linuxOf(request),
  })
}

export type ProcessRequest = Pick<ContainerRequest, 'args' | 'env' | 'cwd' | 'user' | 'terminal'>

/** A process to add to a container. It inherits the capabilities of the first process. */
export function addedProcess({ args, cwd, env, terminal, user }: ProcessRequest): Process {
  return ProcessMessage.fromPartial({
    Terminal: terminal !== undefined,
    ConsoleSize: terminal && { Height: terminal.rows, Width: terminal.columns },
    User: { UID: user.uid, GID: user.gid, AdditionalGids: [...user.additionalGids] },
    Args: [...args],
    Env: mergeEnv([...DEFAULT_ENV, ...(terminal === undefined ? [] : ['TERM=xterm']), ...env]),
    Cwd: cwd,
    NoNewPrivileges: true,
  })
}

function processOf(request: ContainerRequest): Process {
  const env = [`HOSTNAME=${request.hostname}`, ...request.env]
  return {
    ...addedProcess({ ...request, env }),
    Capabilities: capabilitiesOf(request.user.uid),
    Rlimits: [{ Type: 'RLIMIT_NOFILE', Soft: 1024n, Hard: 524_288n }],
  }
}

/** Merges `NAME=value` entries: a name keeps the place of its first entry and gets the value of its last. */
export function mergeEnv(entries: readonly string[]): string[] {
  const values = new Map(entries.map((entry) => [entry.slice(0, entry.indexOf('=')), entry] as const))
  return [...values.values()]
}

/** Users other than root get capabilities only from programs with file capabilities. */
function capabilitiesOf(uid: number): Process['Capabilities'] {
  const held = uid === 0 ? [...CAPABILITIES] : []
  return { Bounding: [...CAPABILITIES], Effective: held, Permitted: held, Inheritable: [], Ambient: [] }
}

function linuxOf(request: ContainerRequest): Partial<Linux> {
  return {
    CgroupsPath: `/${request.id}`,
    // The agent adds the pid namespace. Every container shares the guest's network.
    Namespaces: ['mount', 'ipc', 'uts', 'cgroup'].map((kind) => ({ Type: kind, Path: '' })),
    MaskedPaths: [...MASKED_PATHS],
    ReadonlyPaths: [...READONLY_PATHS],
  }
}

/** The capabilities that container engines commonly leave to root. */
const CAPABILITIES = [
  'CAP_AUDIT_WRITE',
  'CAP_CHOWN',
  'CAP_DAC_OVERRIDE',
  'CAP_FOWNER',
  'CAP_FSETID',
  'CAP_KILL',
  'CAP_MKNOD',
  'CAP_NET_BIND_SERVICE',
  'CAP_NET_RAW',
  'CAP_SETFCAP',
  'CAP_SETGID',
  'CAP_SETPCAP',
  'CAP_SETUID',
  'CAP_SYS_CHROOT',
] as const

type FixedMount = Readonly<Omit<Mount, 'options'>> & { readonly options: readonly string[] }

const MOUNTS: readonly FixedMount[] = [
  { destination: '/proc', type: 'proc', source: 'proc', options: ['nosuid', 'noexec', 'nodev'] },
  {
    destination: '/dev',
    type: 'tmpfs',
    source: 'tmpfs',
    options: ['nosuid', 'strictatime', 'mode=755', 'size=65536k'],
  },
  {
    destination: '/dev/pts',
    type: 'devpts',
    source: 'devpts',
    options: ['nosuid', 'noexec', 'newinstance', 'ptmxmode=0666', 'mode=0620', 'gid=5'],
  },
  {
    destination: '/dev/shm',
    type: 'tmpfs',
    source: 'shm',
    options: ['nosuid', 'noexec', 'nodev', 'mode=1777', 'size=65536k'],
  },
  { destination: '/dev/mqueue', type: 'mqueue', source: 'mqueue', options: ['nosuid', 'noexec', 'nodev'] },
  { destination: '/sys', type: 'sysfs', source: 'sysfs', options: ['nosuid', 'noexec', 'nodev', 'ro'] },
  {
    destination: '/sys/fs/cgroup',
    type: 'cgroup',
    source: 'cgroup',
    options: ['nosuid', 'noexec', 'nodev', 'relatime', 'ro'],
  },
]

/** Files that show or change state of the whole guest. */
const MASKED_PATHS = [
  '/proc/acpi',
  '/proc/asound',
  '/proc/kcore',
  '/proc/keys',
  '/proc/latency_stats',
  '/proc/timer_list',
  '/proc/timer_stats',
  '/proc/sched_debug',
  '/proc/scsi',
  '/sys/firmware',
] as const

const READONLY_PATHS = ['/proc/bus', '/proc/fs', '/proc/irq', '/proc/sys', '/proc/sysrq-trigger'] as const
