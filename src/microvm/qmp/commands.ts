/** The QMP commands that the runner uses, with arguments and results as in QEMU's QMP reference. */
export interface QmpCommands {
  /** Leaves negotiation mode; sent by the client itself. */
  qmp_capabilities: { args: Record<never, never>; result: Record<never, never> }
  /** Ends QEMU at once. */
  quit: { args: Record<never, never>; result: Record<never, never> }
  /** Presses the ACPI power button. */
  system_powerdown: { args: Record<never, never>; result: Record<never, never> }
  'query-status': {
    args: Record<never, never>
    result: { readonly status: string; readonly running: boolean }
  }
  /** Opens the file or device below a disk. */
  'blockdev-add': { args: BlockdevOptions; result: Record<never, never> }
  'blockdev-del': { args: { readonly 'node-name': string }; result: Record<never, never> }
  /** Enlarges a disk and the file below it; `size` is in bytes. */
  block_resize: {
    args: { readonly 'node-name': string; readonly size: number }
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
  /** Creates a backend of a device. */
  'object-add': { args: MemoryBackendOptions; result: Record<never, never> }
  'object-del': { args: { readonly id: string }; result: Record<never, never> }
}

export type QmpCommandName = keyof QmpCommands

/** A raw file or block device as a block node. */
export interface BlockdevOptions {
  readonly driver: 'raw'
  readonly 'node-name': string
  readonly 'read-only'?: boolean
  readonly file: { readonly driver: 'file' | 'host_device'; readonly filename: string }
}

/** An existing tap interface, which no script may change. */
export interface NetdevOptions {
  readonly type: 'tap'
  readonly id: string
  readonly ifname: string
  readonly script: 'no'
  readonly downscript: 'no'
}

export interface DeviceOptions {
  readonly driver: string
  readonly id: string
  readonly bus?: string
  readonly [property: string]: string | number | boolean | undefined
}

/** A place for a CPU; when a CPU is in it, it has a `qom-path`. */
export interface HotpluggableCpu {
  /** The driver for `device_add`. */
  readonly type: string
  readonly props: Readonly<Record<string, number>>
  readonly 'qom-path'?: string
}

/** Memory of this host for the guest, shared so that a vhost-user daemon can use it too. */
export interface MemoryBackendOptions {
  readonly 'qom-type': 'memory-backend-memfd'
  readonly id: string
  readonly size: number
  readonly share: true
}
