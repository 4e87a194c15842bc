import type { Defaults } from '../../../src/host/machine/defaults.ts'

/** As another version might have them: each value is another one. */
export const OTHER_DEFAULTS: Defaults = {
  machine: 'pc-i440fx-7.2',
  cpu: { model: 'Nehalem', unversionedModel: 'Nehalem-v1' },
  memory: { sizeMib: 384, growth: 2, mostMib: 128 * 1024, slots: 8 },
  firmware: 'uefi',
  timers: { rtc: 'delay', pit: 'discard', hpet: true },
  spinlockRetries: 4095,
  sparePorts: 2,
  serialPorts: 8,
  disk: 'virtio-scsi',
  card: 'e1000e',
  share: '9p',
  screen: 'vnc',
  video: { spice: 'vga', vnc: 'virtio' },
  input: { spice: 'tablet', vnc: 'mouse' },
  console: 'virtio',
  rngPeriodMs: 500,
  qxl: { ram: 32_768, vram: 4096, vgamem: 8192 },
  watchdog: { model: 'ib700', action: 'poweroff' },
  present: { balloon: false, rng: true, vsock: true, watchdog: true },
  places: { screenSlot: 9, firstSlot: 11, first: ['disk', 'balloon', 'nic'], last: ['video'] },
}
