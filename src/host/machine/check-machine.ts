import { checkCount } from '../spec/check-spec.ts'
import { pathOf, refuse, shown } from '../spec/component-path.ts'
import { MAX_MMIO_DEVICES } from '../spec/limits.ts'
import { hasPci, type Machine, type MachineDevice } from './machine.ts'

/** Throws INVALID_ARGUMENT that names the field for which no machine can be made, also of one that was written down. */
export function checkMachine(machine: Machine): void {
  const { backends, devices } = machine
  checkCount(Object.keys(devices).length + Object.keys(backends).length)
  checkBackends(machine)
  checkOnce(devices, 'address', placeOf)
  checkOnce(devices, 'properties.serial', ({ properties: { serial } }) => named('serial', serial))
  checkOnce(devices, 'properties.mac', ({ properties: { mac } }) => named('MAC', mac))
  checkOnce(devices, 'properties.bootindex', ({ properties }) => named('boot order', properties.bootindex))
  checkControllers(machine)
  if (hasPci(machine)) return
  const count = Object.values(devices).filter(({ model }) => MMIO.test(model)).length
  if (count > MAX_MMIO_DEVICES) {
    refuse('devices', `${count} virtio devices, machine microvm has at most ${MAX_MMIO_DEVICES}`)
  }
}

/** The devices of machine `microvm` that take a place. */
const MMIO = /^(?:virtio-|vhost-)/

function checkBackends({ backends, devices, firmware }: Machine): void {
  const users = new Map<string, string>()
  for (const [key, { backend }] of Object.entries(devices)) {
    if (Object.hasOwn(backends, key)) refuse(pathOf('devices', key), 'key of a backend too, want another')
    if (backend === undefined) continue
    const at = pathOf('devices', key, 'backend')
    if (!Object.hasOwn(backends, backend)) refuse(at, `${shown(backend)}: no such backend`)
    const other = users.get(backend)
    if (other !== undefined) refuse(at, `${shown(backend)}: already used by ${pathOf('devices', other)}`)
    users.set(backend, key)
  }
  const unused = Object.keys(backends).find((key) => !users.has(key) && key !== firmware.variables)
  if (unused !== undefined) refuse(pathOf('backends', unused), 'no device uses it')
}

/** What no two devices may have alike. */
function checkOnce(
  devices: Machine['devices'],
  field: string,
  uniqueOf: (device: MachineDevice) => string | undefined,
): void {
  const taken = new Map<string, string>()
  for (const [key, device] of Object.entries(devices)) {
    const value = uniqueOf(device)
    if (value === undefined) continue
    const other = taken.get(value)
    const at = `${pathOf('devices', key)}.${field}`
    if (other !== undefined) refuse(at, `${value}: already that of ${pathOf('devices', other)}`)
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

function checkControllers({ devices }: Machine): void {
  for (const [key, { address }] of Object.entries(devices)) {
    if (address === undefined || address.type === 'pci') continue
    const controller = Object.hasOwn(devices, address.controller) ? devices[address.controller] : undefined
    const at = `${pathOf('devices', key)}.address.controller`
    if (controller?.kind.endsWith('-controller') !== true)
      refuse(at, `${shown(address.controller)}: no such controller`)
    const most = controller.properties.max_ports
    if (address.type === 'port' && typeof most === 'number' && address.port >= most) {
      refuse(at, `port ${address.port}: ${shown(address.controller)} has 0 to ${most - 1}`)
    }
  }
}
