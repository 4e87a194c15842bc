import { pathOf, refuse, shown } from '../spec/component-path.ts'
import type { Machine } from './machine.ts'

const DISK = ['serial', 'bootindex', 'werror', 'rerror'] as const
const CARD = ['mac', 'bootindex'] as const

/** The devices that expansions make: the properties of each model, by the kind. Others could name files of the host. */
const HARDWARE: Readonly<Record<string, Readonly<Record<string, readonly string[]>>>> = {
  balloon: { 'virtio-balloon': ['deflate-on-oom'] },
  cdrom: { 'ide-cd': DISK, 'scsi-cd': DISK },
  channel: { virtserialport: ['name'] },
  console: { 'isa-serial': ['index'], virtconsole: [] },
  cpu: { cpu: ['socket-id', 'core-id', 'thread-id'] },
  disk: {
    ...{ 'ide-hd': DISK, 'scsi-hd': DISK, nvme: DISK },
    'virtio-blk': [...DISK, 'iothread'],
  },
  display: { spice: [], vnc: [] },
  'firmware-item': { fw_cfg: ['name'] },
  'generation-id': { vmgenid: [] },
  'ide-controller': { 'piix3-ide': [], 'ich9-ahci': [] },
  input: {
    ...{ 'ps2-mouse': [], 'ps2-keyboard': [] },
    ...{ 'usb-mouse': [], 'usb-tablet': [], 'usb-kbd': [] },
    ...{ 'virtio-mouse': [], 'virtio-tablet': [], 'virtio-keyboard': [] },
  },
  nic: { 'virtio-net': [...CARD, 'queues'], e1000: CARD, e1000e: CARD, rtl8139: CARD },
  panic: { pvpanic: [] },
  'pci-bridge': { 'pci-bridge': ['chassis_nr'] },
  rng: { 'virtio-rng': ['max-bytes', 'period'] },
  'root-port': { 'pcie-root-port': ['chassis'] },
  'sata-controller': { 'ich9-ahci': [] },
  'scsi-controller': { 'virtio-scsi': ['iothread'] },
  share: { 'vhost-user-fs': ['tag'], 'virtio-9p': ['mount_tag'] },
  'usb-controller': { 'qemu-xhci': [], 'piix3-usb-uhci': [] },
  video: {
    'qxl-vga': ['max_outputs', 'ram_size', 'vram_size', 'vgamem_mb'],
    VGA: ['vgamem_mb'],
    'virtio-vga': ['max_outputs'],
  },
  'virtio-serial-controller': { 'virtio-serial': ['max_ports'] },
  vsock: { 'virtio-vsock': ['guest-cid'] },
  watchdog: { i6300esb: ['action'], ib700: ['action'] },
}

/** What places give to devices of all kinds on PCI. */
const PLACED = ['multifunction']

const SMBIOS = ['manufacturer', 'product', 'version', 'serial', 'sku', 'family']

/** QEMU takes what follows a comma for another option. */
const NAME = /^[A-Za-z0-9][\w.-]*$/
const VALUE = /^[\w.:/ +-]*$/

/**
 * Throws INVALID_ARGUMENT that names the device, the property or the option of QEMU that no document leads to: a machine that was not
 * expanded here could name files of the host by it.
 */
export function checkHardware({ cpu, devices, smbios }: Machine): void {
  for (const [key, { kind, model, properties }] of Object.entries(devices)) {
    const at = pathOf('devices', key)
    const models = Object.hasOwn(HARDWARE, kind) ? HARDWARE[kind] : undefined
    if (models === undefined) refuse(`${at}.kind`, `${shown(kind)}: no document has it`)
    const names = Object.hasOwn(models, model) ? models[model] : undefined
    if (names === undefined) refuse(`${at}.model`, `${shown(model)}: no document has it as ${kind}`)
    for (const [name, value] of Object.entries(properties)) {
      const field = `${at}.properties.${name}`
      if (![...names, ...PLACED].includes(name)) refuse(field, `no document gives it to ${model}`)
      if (typeof value === 'string' && !VALUE.test(value))
        refuse(field, `${shown(value)}: no document has it`)
    }
  }
  for (const name of [...Object.keys(cpu.features), ...Object.keys(cpu.expansion ?? {})])
    if (!NAME.test(name)) refuse('cpu.features', `${shown(name)}: no name of a feature`)
  const other = Object.keys(smbios).find((name) => !SMBIOS.includes(name))
  if (other !== undefined) refuse(`smbios.${other}`, `want ${SMBIOS.join(', ')}`)
}
