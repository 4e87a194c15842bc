import { pathOf, refuse } from '../../spec/component-path.ts'
import { type Address, isPc, type Machine, type MachineBackend, type MachineDevice } from '../machine.ts'
import { diskElement } from './disk-element.ts'
import { type Element, element } from './element.ts'

interface Own {
  readonly key: string
  readonly device: MachineDevice
  readonly backend: MachineBackend | undefined
  readonly machine: Machine
  readonly address: Element | undefined
}

/** The elements of libvirt's `devices`, in the order of the machine. */
export function deviceElements(machine: Machine): readonly Element[] {
  const root = element('controller', {
    type: 'pci',
    index: 0,
    model: isPc(machine) ? 'pci-root' : 'pcie-root',
  })
  const elements = Object.entries(machine.devices).flatMap(([key, device]) => {
    const backend = device.backend === undefined ? undefined : machine.backends[device.backend]
    const make = Object.hasOwn(KINDS, device.kind) ? KINDS[device.kind] : undefined
    if (make === undefined) refuse(pathOf('devices', key), `libvirt has no words for a ${device.kind} here`)
    return make({ key, device, backend, machine, address: addressElement(device.address) })
  })
  const hasBalloon = Object.values(machine.devices).some(({ kind }) => kind === 'balloon')
  const hasUsb = Object.values(machine.devices).some(({ kind }) => kind === 'usb-controller')
  return [
    root,
    ...elements,
    // libvirt adds both unless it is told not to.
    ...(hasBalloon ? [] : [element('memballoon', { model: 'none' })]),
    ...(hasUsb ? [] : [element('controller', { type: 'usb', index: 0, model: 'none' })]),
  ]
}

type MakeElements = (own: Own) => readonly Element[]

/** By the kind of device. */
const KINDS: Readonly<Record<string, MakeElements>> = {
  'ide-controller': (own) => [controller(own, 'ide')],
  'sata-controller': (own) => [controller(own, 'sata')],
  'scsi-controller': (own) => [controller(own, 'scsi', { model: 'virtio-scsi' })],
  'usb-controller': (own) => [
    controller(own, 'usb', { model: own.device.model === 'qemu-xhci' ? 'qemu-xhci' : 'piix3-uhci' }),
  ],
  'virtio-serial-controller': (own) => [
    controller(own, 'virtio-serial', { ports: number(own.device.properties.max_ports) }),
  ],
  // The number of CPUs has it.
  cpu: () => [],
  'root-port': (own) => [bus(own, 'pcie-root-port', own.device.properties.chassis)],
  'pci-bridge': (own) => [bus(own, 'pci-bridge', own.device.properties.chassis_nr)],
  disk: diskElements,
  cdrom: diskElements,
  nic: nicElements,
  video: videoElements,
  display: displayElements,
  channel: channelElements,
  console: consoleElements,
  input: inputElements,
  rng: rngElements,
  balloon: ({ address, device }) => {
    const autodeflate = device.properties['deflate-on-oom'] === true ? 'on' : undefined
    return [element('memballoon', { model: 'virtio', autodeflate }, address)]
  },
  // An element of the domain.
  'generation-id': () => [],
  watchdog: ({ address, device }) => [
    element('watchdog', { model: device.model, action: String(device.properties.action) }, address),
  ],
  vsock: ({ address, device }) => {
    const cid = number(device.properties['guest-cid'])
    return [
      element(
        'vsock',
        { model: 'virtio' },
        element('cid', cid ? { auto: 'no', address: cid } : { auto: 'yes' }),
        address,
      ),
    ]
  },
}

function number(value: unknown): number | undefined {
  return typeof value === 'number' ? value : undefined
}

function addressElement(address: Address | undefined): Element | undefined {
  switch (address?.type) {
    case undefined:
      return undefined
    case 'pci': {
      const [bus, slot] = [address.bus, address.slot].map((part) => `0x${part.toString(16).padStart(2, '0')}`)
      return element('address', {
        type: 'pci',
        domain: '0x0000',
        bus,
        slot,
        function: `0x${address.function}`,
      })
    }
    case 'drive': {
      const { bus, target, unit } = address
      return element('address', { type: 'drive', controller: 0, bus, target, unit })
    }
    case 'port':
      if (address.controller.startsWith('usb'))
        return element('address', { type: 'usb', bus: 0, port: address.port })
      return element('address', { type: 'virtio-serial', controller: 0, bus: 0, port: address.port })
    default:
      return address satisfies never
  }
}

function controller({ address, device, key }: Own, type: string, more: Element['attributes'] = {}): Element {
  const index = Number(/\d+$/.exec(key)?.[0] ?? 0)
  const thread = device.properties.iothread
  const driver = thread === undefined ? undefined : element('driver', { iothread: threadNumber(thread) })
  return element('controller', { type, index, ...more }, driver, address)
}

function bus({ address }: Own, model: string, chassis: unknown): Element {
  return element('controller', { type: 'pci', index: number(chassis), model }, address)
}

/** libvirt counts I/O threads from 1. */
function threadNumber(thread: unknown): number {
  return Number(String(thread).replace('iothread', '')) + 1
}

function diskElements({ address, backend, device, key, machine }: Own): readonly Element[] {
  if (backend === undefined) return refuse(pathOf('devices', key, 'backend'), 'missing')
  const { iothread } = device.properties
  const thread = iothread === undefined ? undefined : threadNumber(iothread)
  return [diskElement({ key, device, backend, machine, address, thread })]
}

function nicElements({ address, backend, device, key }: Own): readonly Element[] {
  const { bootindex, mac, queues } = device.properties
  const filters = String(backend?.options.filters ?? '').split(',')
  if (filters.length > 1)
    refuse(`${pathOf('backends', `${key}-backend`)}.options.filters`, 'libvirt takes one')
  const [filter = ''] = filters
  const addresses = String(backend?.options.addresses ?? '')
    .split(',')
    .filter((value) => value !== '')
    .map((value) => element('parameter', { name: value.includes(':') ? 'IPV6' : 'IP', value }))
  const kind = backend?.kind === 'bridge' || backend?.kind === 'tap' ? backend.kind : 'network'
  const isTap = kind === 'tap'
  return [
    element(
      'interface',
      { type: isTap ? 'ethernet' : kind },
      element('mac', { address: String(mac) }),
      isTap ? element('target', { dev: backend?.name }) : element('source', { [kind]: backend?.name }),
      element('model', { type: device.model === 'virtio-net' ? 'virtio' : device.model }),
      queues === undefined ? undefined : element('driver', { queues: number(queues) }),
      filter === '' ? undefined : element('filterref', { filter }, ...addresses),
      bootindex === undefined ? undefined : element('boot', { order: number(bootindex) }),
      address,
    ),
  ]
}

const VIDEO: Readonly<Record<string, string>> = { 'qxl-vga': 'qxl', VGA: 'vga', 'virtio-vga': 'virtio' }

function videoElements({ address, device }: Own): readonly Element[] {
  const { max_outputs: heads, ram_size: ram, vgamem_mb: vgamem, vram_size: vram } = device.properties
  const kib = (bytes: unknown) => (typeof bytes === 'number' ? bytes / 1024 : undefined)
  const isQxl = device.model === 'qxl-vga'
  const memory = typeof vgamem === 'number' ? vgamem * 1024 : undefined
  const sizes = isQxl ? { ram: kib(ram), vram: kib(vram), vgamem: memory } : { vram: memory }
  return [
    element(
      'video',
      {},
      element('model', { type: VIDEO[device.model], ...sizes, heads: number(heads) }),
      address,
    ),
  ]
}

/** The password is set when the machine starts, and is no part of its description. */
function displayElements({ backend, device }: Own): readonly Element[] {
  const { listen, passwordValidTo } = backend?.options ?? {}
  const network = listen === undefined ? { type: 'none' } : { type: 'network', network: String(listen) }
  const until = passwordValidTo === undefined ? undefined : String(passwordValidTo)
  const tls = device.model === 'spice' ? { tlsPort: -1 } : {}
  const port = listen === undefined ? {} : { port: -1, ...tls, autoport: 'yes' }
  return [
    element('graphics', { type: device.model, ...port, passwdValidTo: until }, element('listen', network)),
  ]
}

function channelElements({ address, backend, device }: Own): readonly Element[] {
  const target = element('target', { type: 'virtio', name: String(device.properties.name) })
  if (backend?.kind === 'spice-agent') return [element('channel', { type: 'spicevmc' }, target, address)]
  const source =
    backend?.path === undefined ? undefined : element('source', { mode: 'bind', path: backend.path })
  return [element('channel', { type: 'unix' }, source, target, address)]
}

function consoleElements({ address, device }: Own): readonly Element[] {
  if (device.model === 'virtconsole')
    return [element('console', { type: 'pty' }, element('target', { type: 'virtio' }), address)]
  const target = (type: string) => element('target', { type, port: 0 })
  return [
    element('serial', { type: 'pty' }, target('isa-serial')),
    element('console', { type: 'pty' }, target('serial')),
  ]
}

function inputElements({ address, device }: Own): readonly Element[] {
  const [bus = '', name = ''] = device.model.split('-')
  return [element('input', { type: name === 'kbd' ? 'keyboard' : name, bus }, address)]
}

function rngElements({ address, backend, device }: Own): readonly Element[] {
  const { 'max-bytes': bytes, period } = device.properties
  const rate =
    bytes === undefined ? undefined : element('rate', { bytes: number(bytes), period: number(period) })
  const source = element('backend', { model: 'random' }, backend?.path ?? '/dev/urandom')
  return [element('rng', { model: 'virtio' }, rate, source, address)]
}
