import { MAX_CPUS, MAX_MEMORY_MIB, MAX_MEMORY_SLOTS } from '../../spec/limits.ts'
import {
  boolean,
  integer,
  list,
  object,
  oneOf,
  optional,
  type Read,
  type Shape,
  text,
} from '../document/shape.ts'
import {
  bootOrder,
  catalogueName,
  cpuNumbers,
  hostPath,
  label,
  macAddress,
  pciAddress,
  serial,
  uuid,
} from '../document/words.ts'

/** The part `domain`: libvirt's domain in YAML, as the proposal of KubeVirt has it. Its sizes are KiB where libvirt's are. */

const kib = (least: number) => integer(least, MAX_MEMORY_MIB * 1024, 'KiB')
const mib = integer(1, MAX_MEMORY_MIB, 'MiB')
const count = integer(1, MAX_CPUS)

const nothing: Shape<undefined> = {
  read: () => undefined,
  schema: {},
  isOptional: true,
}

const timer = object({
  timer: oneOf(['hypervclock', 'rtc', 'pit', 'hpet']),
  present: optional(boolean),
  tickPolicy: optional(oneOf(['catchup', 'delay', 'discard'])),
})

const feature = object({
  feature: oneOf(['acpi', 'hyperv']),
  relaxed: optional(boolean),
  vapic: optional(boolean),
  spinlocks: optional(object({ retries: optional(integer(4095, 0xffff_ffff)), state: optional(boolean) })),
})

const cpu = object({
  match: optional(oneOf(['exact'])),
  model: optional(text(/^[A-Za-z0-9][\w.-]{0,63}$/, 'a CPU model of QEMU')),
  topology: optional(object({ cores: count, sockets: count, threads: count })),
  // The proposal writes each cell as a list item that begins with an empty `cell`.
  numa: optional(list(object({ cell: nothing, cpus: cpuNumbers, memory: kib(1024) }), 128)),
})

const channel = object({
  type: oneOf(['unix', 'spicevmc']),
  source: optional(object({ mode: optional(oneOf(['bind'])), path: hostPath })),
  target: object({ name: text(/^[\w.-]{1,64}$/, 'a name'), type: optional(oneOf(['virtio'])) }),
})

const controller = object({
  type: oneOf(['scsi', 'ide', 'sata', 'usb', 'virtio-serial']),
  model: optional(oneOf(['virtio-scsi', 'piix3-uhci', 'qemu-xhci', 'piix3-ide', 'ich9-ahci'])),
  index: optional(integer(0, 0)),
  ports: optional(integer(1, 31)),
  address: optional(pciAddress),
})

const driver = object({
  name: optional(oneOf(['qemu'])),
  type: optional(oneOf(['raw', 'qcow2'])),
  cache: optional(oneOf(['none', 'writeback', 'writethrough', 'directsync', 'unsafe'])),
  io: optional(oneOf(['threads', 'native', 'io_uring'])),
  errorPolicy: optional(oneOf(['stop', 'report', 'ignore', 'enospace'])),
})

const disk = object({
  device: optional(oneOf(['disk', 'cdrom'])),
  type: optional(oneOf(['file'])),
  source: optional(object({ file: optional(hostPath), startupPolicy: optional(oneOf(['optional'])) })),
  target: object({
    bus: oneOf(['ide', 'scsi', 'sata', 'virtio']),
    dev: optional(text(/^(?:hd[a-d]|[sv]d[a-z]{1,2})$/, 'a name such as hda, sda or vda')),
  }),
  ...{ snapshot: optional(boolean), readonly: optional(boolean), serial: optional(serial) },
  ...{ bootOrder: optional(bootOrder), driver: optional(driver), address: optional(pciAddress) },
})

const networkInterface = object({
  type: optional(oneOf(['bridge', 'network', 'ethernet'])),
  source: optional(object({ bridge: optional(catalogueName), network: optional(catalogueName) })),
  /** Of type ethernet: the tap that QEMU makes, without a bridge. */
  target: optional(
    object({ dev: text(/^[A-Za-z0-9][\w.-]{0,14}$/, 'an interface of at most 15 characters') }),
  ),
  model: optional(oneOf(['virtio', 'e1000', 'e1000e', 'rtl8139'])),
  mac: optional(object({ address: macAddress })),
  filterRef: optional(
    object({ filter: oneOf(['no-mac-spoofing', 'no-ip-spoofing', 'no-arp-spoofing', 'clean-traffic']) }),
  ),
  ...{ bootOrder: optional(bootOrder), address: optional(pciAddress) },
})

const graphics = object({
  type: oneOf(['spice', 'vnc']),
  /** The host chooses ports, which for spice and vnc are sockets. */
  ...{ autoport: optional(boolean), port: optional(integer(-1, -1)), tlsPort: optional(integer(-1, -1)) },
  listen: optional(object({ type: oneOf(['network']), network: catalogueName })),
  passwd: optional(text(/^\*+$/, '***** (a secret is in no document)')),
  passwdValidTo: optional(text(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d$/, 'a time such as 2030-01-01T00:00:00')),
})

const video = object({
  type: oneOf(['qxl', 'vga', 'virtio']),
  ...{ ram: optional(integer(1024, 1 << 20, 'KiB')), vram: optional(integer(1024, 1 << 20, 'KiB')) },
  ...{ vgamem: optional(integer(1024, 1 << 20, 'KiB')), heads: optional(integer(1, 16)) },
  address: optional(pciAddress),
})

const sysinfo = object({
  ...{ manufacturer: optional(label), product: optional(label), version: optional(label) },
  ...{ serial: optional(label), sku: optional(label), family: optional(label), uuid: optional(uuid) },
})

const devices = object({
  channels: optional(list(channel, 30)),
  memballoon: optional(object({ model: oneOf(['virtio', 'none']), address: optional(pciAddress) })),
  rng: optional(object({ backend: oneOf(['random']), path: optional(hostPath) })),
  controllers: optional(list(controller, 16)),
  video: optional(list(video, 1)),
  disks: optional(list(disk, 1024)),
  interfaces: optional(list(networkInterface, 256)),
  graphics: optional(list(graphics, 1)),
  inputs: optional(
    list(
      object({
        type: oneOf(['mouse', 'tablet', 'keyboard']),
        bus: optional(oneOf(['ps2', 'usb', 'virtio'])),
      }),
      16,
    ),
  ),
})

export const domainShape = object({
  uuid: optional(uuid),
  memory: optional(object({ size: mib, current: optional(mib) })),
  maxmemory: optional(object({ size: kib(1024), slots: optional(integer(1, MAX_MEMORY_SLOTS)) })),
  iothreads: optional(integer(0, 64)),
  vcpu: optional(object({ count, current: optional(count) })),
  sysinfo: optional(sysinfo),
  clock: optional(list(timer, 4)),
  clockAdjustment: optional(integer(-86_400, 86_400, 'seconds from UTC')),
  features: optional(list(feature, 2)),
  cpu: optional(cpu),
  devices: optional(devices),
  os: optional(
    object({
      type: object({
        os: optional(oneOf(['hvm'])),
        arch: optional(oneOf(['x86_64'])),
        machine: optional(text(/^[\w.-]{1,64}$/, 'a machine')),
      }),
      smbios: optional(object({ mode: oneOf(['sysinfo']) })),
    }),
  ),
})

export type Domain = Read<typeof domainShape>
