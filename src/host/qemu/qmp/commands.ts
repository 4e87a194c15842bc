export interface QmpCommands {
  /** Leaves negotiation mode; sent by the client itself. */
  qmp_capabilities: { args: Record<never, never>; result: Record<never, never> }
  quit: { args: Record<never, never>; result: Record<never, never> }
  system_powerdown: { args: Record<never, never>; result: Record<never, never> }
  system_reset: { args: Record<never, never>; result: Record<never, never> }
  cont: { args: Record<never, never>; result: Record<never, never> }
  stop: { args: Record<never, never>; result: Record<never, never> }
  /** Sends frames from each card that tell where it is: a few rounds, with pauses in milliseconds. */
  'announce-self': {
    args: Readonly<Record<'initial' | 'max' | 'rounds' | 'step', number>>
    result: Record<never, never>
  }
  'query-version': {
    args: Record<never, never>
    result: { readonly qemu: { readonly major: number; readonly minor: number } }
  }
  'query-kvm': { args: Record<never, never>; result: { readonly enabled: boolean } }
  'query-status': {
    args: Record<never, never>
    result: { readonly status: string; readonly running: boolean }
  }
  'query-cpus-fast': {
    args: Record<never, never>
    /** A thread's id is that in QEMU's PID namespace. */
    result: readonly { readonly 'cpu-index': number; readonly 'thread-id': number }[]
  }
  'blockdev-add': { args: BlockdevOptions; result: Record<never, never> }
  'blockdev-reopen': { args: { readonly options: readonly [BlockdevOptions] }; result: Record<never, never> }
  'query-named-block-nodes': { args: { readonly flat: true }; result: readonly BlockNode[] }
  /** Lists the descriptors that were given to QEMU; `opaque` is the path of the file. */
  'query-fdsets': { args: Record<never, never>; result: readonly FdSet[] }
  'remove-fd': { args: { readonly 'fdset-id': number }; result: Record<never, never> }
  /** All actions happen at one moment, or none. */
  transaction: {
    args: {
      readonly actions: readonly {
        readonly type: 'blockdev-snapshot'
        readonly data: { readonly node: string; readonly overlay: string }
      }[]
    }
    result: Record<never, never>
  }
  /** Writes what a node has into one below it. Without `top-node` the topmost, which takes `job-complete` in the end. */
  'block-commit': { args: CommitOptions; result: Record<never, never> }
  'query-jobs': { args: Record<never, never>; result: readonly Job[] }
  'job-complete': { args: { readonly id: string }; result: Record<never, never> }
  'job-cancel': { args: { readonly id: string }; result: Record<never, never> }
  'job-dismiss': { args: { readonly id: string }; result: Record<never, never> }
  /** Copies a topmost node to another one, and goes on until it is told to end. */
  'blockdev-mirror': { args: MirrorOptions; result: Record<never, never> }
  /** Unless `force`, a mirror that is ready first copies what it has not copied yet. */
  'block-job-cancel': {
    args: { readonly device: string; readonly force?: boolean }
    result: Record<never, never>
  }
  /** Ends connections at once, also while QEMU waits for their other ends. */
  yank: {
    args: {
      readonly instances: readonly (
        | { readonly type: 'block-node'; readonly 'node-name': string }
        | { readonly type: 'migration' }
      )[]
    }
    result: Record<never, never>
  }
  'query-yank': {
    args: Record<never, never>
    result: readonly { readonly type: string; readonly 'node-name'?: string }[]
  }
  'nbd-server-start': {
    args: {
      readonly addr: { readonly type: 'fd'; readonly data: { readonly str: string } }
      readonly 'tls-creds'?: string
      readonly 'tls-authz'?: string
      readonly 'max-connections': number
    }
    result: Record<never, never>
  }
  'nbd-server-stop': { args: Record<never, never>; result: Record<never, never> }
  'block-export-add': {
    args: {
      readonly type: 'nbd'
      readonly id: string
      readonly name: string
      readonly 'node-name': string
      readonly writable: true
    }
    result: Record<never, never>
  }
  /** `hard` ends its connections; BLOCK_EXPORT_DELETED reports when it is gone. */
  'block-export-del': { args: { readonly id: string; readonly mode: 'hard' }; result: Record<never, never> }
  'query-block-exports': { args: Record<never, never>; result: readonly { readonly id: string }[] }
  migrate: { args: { readonly uri: string }; result: Record<never, never> }
  'migrate-incoming': { args: { readonly uri: string }; result: Record<never, never> }
  'migrate-continue': { args: { readonly state: 'pre-switchover' }; result: Record<never, never> }
  migrate_cancel: { args: Record<never, never>; result: Record<never, never> }
  'migrate-set-capabilities': {
    args: { readonly capabilities: readonly { readonly capability: string; readonly state: boolean }[] }
    result: Record<never, never>
  }
  'query-migrate-capabilities': {
    args: Record<never, never>
    result: readonly { readonly capability: string; readonly state: boolean }[]
  }
  'migrate-set-parameters': {
    args: Readonly<Record<string, string | number | boolean>>
    result: Record<never, never>
  }
  'query-migrate': { args: Record<never, never>; result: MigrationInfo }
  'query-block-jobs': { args: Record<never, never>; result: readonly BlockJob[] }
  /** Tells which permissions each user of a block node has; QEMU promises no stable form. */
  'x-debug-query-block-graph': { args: Record<never, never>; result: BlockGraph }
  /** Lists the devices that have an id: `path` is `/machine/peripheral`. */
  'qom-list': { args: { readonly path: string }; result: readonly { readonly name: string }[] }
  /** The time of the clock that the guest reads and sets, as tm(3type) has it. */
  'qom-get': {
    args: { readonly path: '/machine'; readonly property: 'rtc-time' }
    result: Readonly<Record<`tm_${'year' | 'mon' | 'mday' | 'hour' | 'min' | 'sec'}`, number>>
  }
  'blockdev-del': { args: { readonly 'node-name': string }; result: Record<never, never> }
  /** Enlarges a disk and the file below it; `size` is in bytes. */
  block_resize: {
    args: { readonly 'node-name': string; readonly size: number }
    result: Record<never, never>
  }
  /** `value` is how many bytes of memory the guest is to keep. QEMU remembers it, also for the next boot. */
  balloon: { args: { readonly value: number }; result: Record<never, never> }
  /** Takes no effect without `password=on` of VNC, or with `disable-ticketing=on` of spice. */
  set_password: {
    args: { readonly protocol: ScreenProtocol; readonly password: string }
    result: Record<never, never>
  }
  /** `time` is `never` or seconds since 1970. */
  expire_password: {
    args: { readonly protocol: ScreenProtocol; readonly time: string }
    result: Record<never, never>
  }
  netdev_add: { args: NetdevOptions; result: Record<never, never> }
  netdev_del: { args: { readonly id: string }; result: Record<never, never> }
  /** Plugs a device in; `bus` is a root port or bridge of machine q35. Other properties belong to the driver. */
  device_add: { args: DeviceOptions; result: Record<never, never> }
  /** Asks the guest to release a device; DEVICE_DELETED reports when it has done so. */
  device_del: { args: { readonly id: string }; result: Record<never, never> }
  /** Lists every CPU that the machine has or has room for. */
  'query-hotpluggable-cpus': { args: Record<never, never>; result: readonly HotpluggableCpu[] }
  'object-add': { args: MemoryBackendOptions; result: Record<never, never> }
  'object-del': { args: { readonly id: string }; result: Record<never, never> }
}

export type QmpCommandName = keyof QmpCommands

type ScreenProtocol = 'vnc' | 'spice'

export interface FdSet {
  readonly 'fdset-id': number
  readonly fds: readonly { readonly opaque?: string }[]
}

export interface BlockNode {
  readonly 'node-name': string
  /** The name of the file, of the protocol node and of the format node above it. */
  readonly file: string
  readonly ro: boolean
  readonly image: { readonly 'virtual-size': number }
}

interface CommitOptions {
  readonly 'job-id': string
  /** The topmost node. */
  readonly device: string
  readonly 'top-node'?: string
  readonly 'base-node': string
  /** The name of the node below that an image then has in it. */
  readonly 'backing-file'?: string
  readonly 'auto-dismiss': false
}

export interface Job {
  readonly id: string
  readonly status: string
  readonly error?: string
}

export interface BlockJob {
  /** The id of the job. */
  readonly device: string
  readonly type: string
  readonly status: string
  /** Bytes that were copied, and that are to be; both grow with what is written meanwhile. */
  readonly offset: number
  readonly len: number
  /** Other than `ok` for a job that stands still since an error. */
  readonly 'io-status': 'ok' | 'failed' | 'nospace'
  readonly error?: string
}

interface MirrorOptions {
  readonly 'job-id': string
  readonly device: string
  readonly target: string
  /** `top` is without what is below the node, `none` only what is written from now on. */
  readonly sync: 'full' | 'top' | 'none'
  /** With `write-blocking` a write of the guest ends once it is in both. */
  readonly 'copy-mode': 'background' | 'write-blocking'
  readonly 'filter-node-name': string
  /** Bytes per second; 0 is no limit. */
  readonly speed: number
  readonly 'on-source-error': 'stop'
  readonly 'on-target-error': 'stop'
  readonly 'auto-dismiss': false
}

/** What QEMU tells of the last migration; times are in milliseconds. */
export interface MigrationInfo {
  readonly status?: string
  readonly 'error-desc'?: string
  readonly 'blocked-reasons'?: readonly string[]
  readonly 'total-time'?: number
  readonly downtime?: number
  readonly 'expected-downtime'?: number
  readonly 'cpu-throttle-percentage'?: number
  readonly ram?: {
    readonly transferred: number
    readonly remaining: number
    readonly total: number
    readonly mbps: number
    readonly 'page-size': number
    /** Pages per second. */
    readonly 'dirty-pages-rate': number
    readonly 'dirty-sync-count': number
  }
}

export interface BlockGraph {
  readonly nodes: readonly {
    readonly id: number
    readonly type: 'block-backend' | 'block-job' | 'block-driver'
    readonly name: string
  }[]
  readonly edges: readonly {
    readonly name: string
    readonly parent: number
    readonly child: number
    readonly perm: readonly string[]
  }[]
}

/** As parts of a machine have them. */
type BlockdevOptions = Readonly<Record<string, unknown>>

/** An existing tap interface, which no script may change. */
interface NetdevOptions {
  readonly type: 'tap'
  readonly id: string
  readonly ifname: string
  readonly script: 'no'
  readonly downscript: 'no'
}

interface DeviceOptions {
  readonly driver: string
  readonly id: string
  readonly bus?: string
  readonly [property: string]: string | number | boolean | undefined
}

/** A place for a CPU; when a CPU is in it, it has a `qom-path`. */
interface HotpluggableCpu {
  /** The driver for `device_add`. */
  readonly type: string
  readonly props: Readonly<Record<string, number>>
  readonly 'qom-path'?: string
}

/** Memory of this host for the guest, shared so that a vhost-user daemon can use it too. */
interface MemoryBackendOptions {
  readonly 'qom-type': 'memory-backend-memfd'
  readonly id: string
  readonly size: number
  readonly share: true
}
