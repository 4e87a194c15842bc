import { checkCount } from '../spec/check-spec.ts'
import { pathOf, refuse, shown } from '../spec/component-path.ts'
import { MAX_MMIO_DEVICES } from '../spec/limits.ts'
import { hasPci, type Machine, type MachineDevice } from './machine.ts'

/** How errors name what a machine has. */
export interface MachinePaths {
  readonly whole: string
  readonly device: (key: string) => string
  /** Below a device. */
  readonly fields: Readonly<Record<'address' | 'bootOrder' | 'mac' | 'serial', string>>
}

/** Of a machine that was written down. */
const OWN_PATHS: MachinePaths = {
  whole: 'machine',
  device: (key) => pathOf('devices', key),
  fields: {
    ...{ address: 'address', bootOrder: 'properties.bootindex' },
    ...{ mac: 'properties.mac', serial: 'properties.serial' },
  },
}

/** Throws INVALID_ARGUMENT that names the field for which no machine can be made. */
export function checkMachine(machine: Machine, paths = OWN_PATHS): void {
  const { backends, devices } = machine
  checkCount(Object.keys(devices).length + Object.keys(backends).length, paths.whole)
  checkBackends(machine, paths)
  const once = (
    field: keyof MachinePaths['fields'],
    uniqueOf: (device: MachineDevice) => string | undefined,
  ) => checkOnce(devices, uniqueOf, { device: paths.device, field: paths.fields[field] })
  once('address', placeOf)
  once('serial', ({ properties: { serial } }) => named('serial', serial))
  once('mac', ({ properties: { mac } }) => named('MAC', mac))
  once('bootOrder', ({ properties }) => named('boot order', properties.bootindex))
  checkControllers(machine, paths)
  if (hasPci(machine)) return
  const count = Object.values(devices).filter(({ model }) => MMIO.test(model)).length
  if (count > MAX_MMIO_DEVICES) {
    refuse(paths.whole, `${count} virtio devices, machine microvm has at most ${MAX_MMIO_DEVICES}`)
  }
}

/** The devices of machine `microvm` that take a place. */
const MMIO = /^(?:virtio-|vhost-)/

function checkBackends({ backends, devices, firmware }: Machine, paths: MachinePaths): void {
  const users = new Map<string, string>()
  for (const [key, { backend }] of Object.entries(devices)) {
    if (Object.hasOwn(backends, key)) refuse(paths.device(key), 'key of a backend too, want another')
    if (backend === undefined) continue
    const at = `${paths.device(key)}.backend`
    if (!Object.hasOwn(backends, backend)) refuse(at, `${shown(backend)}: no such backend`)
    const other = users.get(backend)
    if (other !== undefined) refuse(at, `${shown(backend)}: already used by ${paths.device(other)}`)
    users.set(backend, key)
  }
  const unused = Object.keys(backends).find((key) => !users.has(key) && key !== firmware.variables)
  if (unused !== undefined) refuse(pathOf('backends', unused), 'no device uses it')
}

/** What no two devices may have alike. */
function checkOnce(
  devices: Machine['devices'],
  uniqueOf: (device: MachineDevice) => string | undefined,
  path: { readonly device: MachinePaths['device']; readonly field: string },
): void {
  const taken = new Map<string, string>()
  for (const [key, device] of Object.entries(devices)) {
    const value = uniqueOf(device)
    if (value === undefined) continue
    const other = taken.get(value)
    const at = `${path.device(key)}.${path.field}`
    if (other !== undefined) refuse(at, `${value}: already that of ${path.device(other)}`)
    taken.set(value, key)
  }
}

function named(what: string, value: unknown): string | undefined {
  return value === undefined ? undefined : `${what} ${value}`
}

function placeOf({ address }: MachineDevice): string | undefined {
  switch (address?.type) {
    case undefined:
      return undefined
    case 'pci':
      return `PCI ${address.bus}:${address.slot}.${address.function}`
    case 'drive':
      return `${address.controller} ${address.bus}:${address.target}:${address.unit}`
    case 'port':
      return `${address.controller} port ${address.port}`
    default:
      return address satisfies never
  }
}

function checkControllers({ devices }: Machine, paths: MachinePaths): void {
  for (const [key, { address }] of Object.entries(devices)) {
    if (address === undefined || address.type === 'pci') continue
    const controller = Object.hasOwn(devices, address.controller) ? devices[address.controller] : undefined
    const at = `${paths.device(key)}.address.controller`
    if (controller?.kind.endsWith('-controller') !== true)
      refuse(at, `${shown(address.controller)}: no such controller`)
    const most = controller.properties.max_ports
    if (address.type === 'port' && typeof most === 'number' && address.port >= most) {
      refuse(at, `port ${address.port}: ${shown(address.controller)} has 0 to ${most - 1}`)
    }
  }
}
