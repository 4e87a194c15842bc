import type { Machine } from './machine.ts'

/** What a machine has where its document does not say. A machine that is written down keeps those that it was made with. */
export interface Defaults {
  readonly machine: Machine['board']['machine']
  readonly cpu: {
    readonly model: string
    /** Of a machine without versions. */
    readonly unversionedModel: string
  }
  /** With how many times its size it can grow to, up to `mostMib`. */
  readonly memory: Readonly<Record<'sizeMib' | 'growth' | 'mostMib' | 'slots', number>>
  readonly firmware: Machine['firmware']['type']
  readonly timers: Pick<Machine['clock']['timers'], 'rtc' | 'pit' | 'hpet'>
  readonly spinlockRetries: number
  /** Empty root ports of q35, unless the document names some. */
  readonly sparePorts: number
  readonly serialPorts: number
  readonly disk: 'virtio-blk' | 'virtio-scsi'
  readonly card: 'virtio' | 'e1000e'
  readonly share: 'virtio-fs' | '9p'
  readonly screen: 'spice' | 'vnc'
  readonly video: Readonly<Record<'spice' | 'vnc', 'qxl' | 'vga' | 'virtio'>>
  readonly input: Readonly<Record<'spice' | 'vnc', 'mouse' | 'tablet'>>
  /** Of a machine without a screen. */
  readonly console: 'serial' | 'virtio' | 'none'
  readonly rngPeriodMs: number
  /** KiB. */
  readonly qxl: Readonly<Record<'ram' | 'vram' | 'vgamem', number>>
  readonly watchdog: { readonly model: 'i6300esb' | 'ib700'; readonly action: 'reset' | 'poweroff' }
  /** Whether a machine has the device without a wish, where its board can. */
  readonly present: Readonly<Record<'balloon' | 'rng' | 'vsock' | 'watchdog', boolean>>
  readonly places: {
    /** For a screen, also where there is none: one that comes later moves nothing. */
    readonly screenSlot: number
    readonly firstSlot: number
    /** The order in which devices take the free places. Others come before the last ones. */
    readonly first: readonly string[]
    readonly last: readonly string[]
  }
}

export const DEFAULTS: Defaults = {
  machine: 'pc-q35-7.2',
  cpu: {
    // x86-64-v2 with AES, which both KVM on each host of the last decade and QEMU's emulation give in full.
    model: 'Westmere',
    // The name without a version is then the newest one, which emulation does not give in full.
    unversionedModel: 'Westmere-v1',
  },
  // Memory that can be added costs the guest's kernel tables, and addresses that a small CPU model has not.
  memory: { sizeMib: 512, growth: 4, mostMib: 256 * 1024, slots: 16 },
  firmware: 'bios',
  timers: { rtc: 'catchup', pit: 'delay', hpet: false },
  spinlockRetries: 8191,
  // Devices can be plugged in nowhere else.
  sparePorts: 4,
  serialPorts: 16,
  disk: 'virtio-blk',
  card: 'virtio',
  share: 'virtio-fs',
  screen: 'spice',
  video: { spice: 'qxl', vnc: 'vga' },
  input: { spice: 'mouse', vnc: 'tablet' },
  // Without a screen, a console is the only way to see a guest that fails.
  console: 'serial',
  rngPeriodMs: 1000,
  // As in libvirt.
  qxl: { ram: 65_536, vram: 8192, vgamem: 16_384 },
  watchdog: { model: 'i6300esb', action: 'reset' },
  present: { balloon: true, rng: false, vsock: false, watchdog: false },
  places: {
    screenSlot: 2,
    firstSlot: 3,
    first: ['video', 'nic', 'scsi-controller', 'virtio-serial-controller', 'usb-controller', 'disk'],
    last: ['rng', 'balloon'],
  },
}
