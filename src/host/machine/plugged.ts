import { AgentError } from '../../base/errors.ts'
import { pathOf, refuse, shown } from '../spec/component-path.ts'
import { checkMachine } from './check-machine.ts'
import { DEFAULTS } from './defaults.ts'
import { isObject } from './document/shape.ts'
import { catalogueName } from './document/words.ts'
import { FEATURES, featuresShape } from './features/table.ts'
import {
  isPc,
  type Machine,
  type MachineDevice,
  machineShape,
  type PciAddress,
  placeName,
} from './machine.ts'
import { movedCpu, pluggedCpu } from './plugged-cpu.ts'

/** The features whose devices a running guest takes. */
const PLUGGED = ['storage', 'network', 'cpu'] as const

/**
 * The machine with one more device, named `key`, of features that have it alone, at a place that is free while the machine runs.
 * Throws INVALID_ARGUMENT or FAILED_PRECONDITION that names the field.
 */
export function withPlugged(machine: Machine, features: unknown, key: string, defaults = DEFAULTS): Machine {
  const at = 'features'
  const [name, wish] = onlyFeature(features, at)
  if (name === 'cpu') {
    const field = `${at}.cpu`
    if (Object.hasOwn(machine.devices, key)) refuse(field, `name ${shown(key)}: already that of a device`)
    return withDevice(machine, key, pluggedCpu(machine, wish, field), { at, field })
  }
  const item = onlyItem(wish, `${at}.${name}`)
  const { name: own = key } = item
  if (own !== key) refuse(`${at}.${name}[0].name`, `${shown(String(own))}: want ${key}, or none`)
  const wishes: Readonly<Record<string, unknown>> = featuresShape.read(
    { [name]: [{ ...item, name: key }] },
    at,
  )
  const feature = FEATURES.find((each) => each.name === name)
  if (feature === undefined) return refuse(`${at}.${name}`, 'unknown')
  const context = { facts: {}, at: `${at}.${name}` }
  const begin = { ...machine, devices: draftOf(machine), defaults }
  const { defaults: _defaults, devices, backends, ...draft } = feature.expand(begin, wishes[name], context)
  const added = Object.keys(devices).filter((each) => !Object.hasOwn(machine.devices, each))
  const other = added.find((each) => each !== key)
  if (other !== undefined) refuse(`${at}.${name}[0]`, `wants ${other}, which this machine has not`)
  const device = devices[key]
  if (device === undefined) return refuse(`${at}.${name}`, 'no device')
  const { from: _, pci, ...plain } = device
  if (pci === undefined && device.model.startsWith('ide'))
    refuse(
      `${at}.${name}[0].interface`,
      'takes no disk while the machine runs, want virtio-blk or virtio-scsi',
    )
  if (device.address?.type === 'pci') checkFree(machine, device.address, `${at}.${name}[0].address`)
  const address = device.address ?? (pci === undefined ? undefined : freePlace(machine))
  const placed = { ...plain, ...(address && { address }) }
  const field = `${at}.${name}[0]`
  return withDevice({ ...draft, devices: machine.devices, backends }, key, placed, { at, field })
}

/** The vsock device that had left a machine: `address` is as it was recorded. */
export interface LeftVsock {
  readonly backend: string
  readonly cid: number
  readonly address: unknown
}

const GUEST_CIDS = { first: 3, last: 0xffff_fffe }

/** The machine with its vsock device at the place that it had, or at one that is free. Throws as {@link withPlugged} does. */
export function withVsock(machine: Machine, key: string, { address, backend, cid }: LeftVsock): Machine {
  const at = pathOf('devices', key)
  const other = Object.keys(machine.devices).find((each) => machine.devices[each]?.kind === 'vsock')
  if (other !== undefined) refuse(at, `the machine has a vsock device, ${other}`)
  if (cid !== 0 && (cid < GUEST_CIDS.first || cid > GUEST_CIDS.last)) refuse(at, `cid ${cid}: not a guest's`)
  const backends = { ...machine.backends, [backend]: { kind: 'vsock', options: {} } }
  const put = (place: unknown): Machine => {
    const device = { kind: 'vsock', model: 'virtio-vsock', properties: { 'guest-cid': cid }, backend }
    return withDevice({ ...machine, backends }, key, { ...device, address: place }, { at, field: at })
  }
  if (address === undefined) return put(freePlace(machine))
  try {
    return put(address)
  } catch {
    return put(freePlace(machine))
  }
}

function withDevice(
  machine: Machine,
  key: string,
  device: Omit<MachineDevice, 'address'> & { readonly address?: unknown },
  { at, field }: Readonly<Record<'at' | 'field', string>>,
): Machine {
  const devices = { ...machine.devices, [key]: { ...device, plugged: true } }
  const read = machineShape.read({ ...machine, devices }, '')
  checkMachine(read, {
    whole: at,
    device: (each) => (each === key ? field : pathOf('devices', each)),
    fields: { address: 'address', bootOrder: 'bootOrder', mac: 'mac', serial: 'serial' },
  })
  return read
}

/** Whether the guest can let a device go: on pc from a slot of its own on the first bus, on q35 from a root port. */
export function canLeave(machine: Machine, key: string): boolean {
  const { address } = machine.devices[key] ?? {}
  if (address?.type !== 'pci') return false
  const left = withoutMachineDevices(machine, [key])
  return isFree(left, { ...address, function: 0 }) && address.function === 0
}

/** The machine without devices and what is behind them. The ports that they were in stay. */
export function withoutMachineDevices(machine: Machine, keys: readonly string[]): Machine {
  const { devices, unplugged = [] } = machine
  const gone = keys.flatMap((key) => devices[key]?.backend ?? [])
  const own = keys.filter((key) => devices[key] !== undefined && devices[key].plugged !== true)
  const all = [...new Set([...unplugged, ...own])]
  return {
    ...machine,
    devices: without(devices, keys),
    backends: without(machine.backends, gone),
    ...(all.length > 0 && { unplugged: all }),
  }
}

/** The tables of the catalogue that have a name for a backend, by its kind. */
const NAMED: Readonly<Record<string, string>> = {
  ...{ volume: 'volume', file: 'volume', empty: 'volume' },
  ...{ network: 'network', bridge: 'network', tap: 'network' },
  folder: 'folder',
}

/** The machine with another volume, network or folder behind a device. Throws NOT_FOUND, or INVALID_ARGUMENT that names the field. */
export function withSource(machine: Machine, backend: string, source: string): Machine {
  const present = machine.backends[backend]
  if (present === undefined) throw new AgentError('NOT_FOUND', `backend ${backend}: not found`)
  const kind = NAMED[present.kind]
  if (kind === undefined)
    return refuse('source', `no ${present.kind} has a name in the catalogue, want a disk, card or share`)
  const name = catalogueName.read(source, 'source')
  const next = { kind, name, options: present.options, replaced: true }
  return { ...machine, backends: { ...machine.backends, [backend]: next } }
}

/**
 * The machine of a new expansion with what was plugged into the one before and out of it, and what was put behind its devices. A
 * device keeps its place where that is free. Throws as {@link withPlugged} does.
 */
export function withPlugsOf(machine: Machine, before: Machine): Machine {
  const { unplugged = [] } = before
  let next = withoutMachineDevices(machine, unplugged)
  for (const [key, device] of Object.entries(before.devices)) {
    if (!device.plugged) continue
    if (Object.hasOwn(next.devices, key))
      refuse(pathOf('devices', key), 'plugged in, and of the document too')
    const { address, backend = '' } = device
    const isTaken = address?.type === 'pci' && !isFree(next, address)
    const place = isTaken ? { address: freePlace(next) } : {}
    const behind = before.backends[backend]
    const own = device.kind === 'cpu' ? movedCpu(next, device) : device
    const devices = { ...next.devices, [key]: { ...own, ...place } }
    next = { ...next, devices, backends: { ...next.backends, ...(behind && { [backend]: behind }) } }
  }
  for (const [key, { name = '', replaced }] of Object.entries(before.backends)) {
    if (replaced !== true || next.backends[key]?.replaced) continue
    if (!Object.hasOwn(next.backends, key))
      refuse(pathOf('backends', key), 'replaced, and not of the document')
    next = withSource(next, key, name)
  }
  const read = machineShape.read({ ...next, ...(unplugged.length > 0 && { unplugged }) }, '')
  checkMachine(read)
  return read
}

function without<T>(all: Readonly<Record<string, T>>, keys: readonly string[]): Record<string, T> {
  return Object.fromEntries(Object.entries(all).filter(([key]) => !keys.includes(key)))
}

function onlyFeature(features: unknown, at: string): readonly [string, unknown] {
  const [[name, wish] = [], ...others] = isObject(features) ? Object.entries(features) : []
  const want = `want one of ${PLUGGED.join(', ')} with one device`
  if (name === undefined || others.length > 0) return refuse(at, want)
  if (!PLUGGED.some((each) => each === name))
    return refuse(`${at}.${name}`, `a running machine takes none, ${want}`)
  return [name, wish]
}

function onlyItem(wish: unknown, at: string): Readonly<Record<string, unknown>> {
  const [item, ...more] = Array.isArray(wish) ? wish : [wish]
  if (more.length > 0) return refuse(at, `${more.length + 1} devices, want one`)
  return isObject(item) ? item : { source: item }
}

function draftOf({ devices }: Machine) {
  return Object.fromEntries(
    Object.entries(devices).map(([key, device]) => [key, { ...device, from: `devices.${key}` }]),
  )
}

const FIRST_SLOT = 3
const LAST_SLOT = 30

/** An empty root port, or on pc a slot of the first bus. */
function freePlace(machine: Machine): PciAddress {
  const place = placesOf(machine).find((each) => isEmpty(machine, each))
  if (place !== undefined) return place
  throw new AgentError(
    'FAILED_PRECONDITION',
    `no free ${isPc(machine) ? 'slot' : 'root port'} in the machine`,
  )
}

/** Where a device can be plugged in. */
function placesOf(machine: Machine): readonly PciAddress[] {
  const slots = isPc(machine) ? [...Array(LAST_SLOT + 1).keys()].slice(FIRST_SLOT) : []
  const ports = Object.values(machine.devices).flatMap((device) => busBehind(device))
  return [
    ...slots.map((slot) => ({ type: 'pci', bus: 0, slot, function: 0 }) as const),
    ...ports.map((bus) => ({ type: 'pci', bus, slot: 0, function: 0 }) as const),
  ]
}

/** Only there does a running machine notice a device. */
function checkFree(machine: Machine, address: PciAddress, at: string): void {
  if (address.function === 0 && isFree(machine, address)) return
  const want = isPc(machine)
    ? `a free slot of bus 0, ${FIRST_SLOT} to ${LAST_SLOT}`
    : 'the bus of an empty root port, slot 0'
  refuse(at, `${placeName(address)}: want ${want}`)
}

function isFree(machine: Machine, place: PciAddress): boolean {
  const isOne = placesOf(machine).some(({ bus, slot }) => bus === place.bus && slot === place.slot)
  return isOne && isEmpty(machine, place)
}

function isEmpty(machine: Machine, { bus, slot }: PciAddress): boolean {
  return Object.values(machine.devices).every(
    ({ address }) => address?.type !== 'pci' || address.bus !== bus || (bus === 0 && address.slot !== slot),
  )
}

function busBehind({ kind, properties }: MachineDevice): readonly number[] {
  return kind === 'root-port' ? [Number(properties.chassis)] : []
}
