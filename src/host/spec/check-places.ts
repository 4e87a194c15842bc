import { pathOf, refuse, shown } from './component-path.ts'
import { MAX_MEMORY_SLOTS, MAX_MMIO_DEVICES } from './limits.ts'
import { chipsetOf, type Device, type RootPortDevice, type VmSpec } from './spec.ts'
import type { SpecKey } from './spec-key.ts'

/** Throws INVALID_ARGUMENT that names the device whose place is missing, out of range, or another device's. */
export function checkPlaces(spec: VmSpec): void {
  const taken = new Map<string, string>()
  const modules = Object.values(spec.devices).filter(({ kind }) => kind === 'nvdimm').length
  for (const [key, device] of Object.entries(spec.devices)) {
    const place = placeOf(key, device, spec, modules > 1)
    if (place === undefined) continue
    const other = taken.get(place.name)
    if (other !== undefined) refuse(place.at, `${place.name}: already used by ${pathOf('devices', other)}`)
    taken.set(place.name, key)
  }
  if (chipsetOf(spec.board.machine) === 'microvm' && taken.size > MAX_MMIO_DEVICES) {
    refuse('devices', `${taken.size} virtio devices, machine microvm has at most ${MAX_MMIO_DEVICES}`)
  }
}

interface Place {
  readonly at: string
  readonly name: string
}

function placeOf(key: string, device: Device, spec: VmSpec, hasSeveralModules: boolean): Place | undefined {
  const at = pathOf('devices', key, 'slot')
  switch (device.kind) {
    case 'serial':
    case 'fw-cfg':
      return undefined
    case 'nvdimm': {
      const { slot = 0 } = device
      if (!Number.isInteger(slot) || slot < 0 || slot >= MAX_MEMORY_SLOTS) {
        refuse(at, `${slot}: want 0 to ${MAX_MEMORY_SLOTS - 1}`)
      }
      return hasSeveralModules ? { at, name: `persistent memory ${slot}` } : undefined
    }
    case 'root-port': {
      checkSlot(at, device.slot)
      checkFirstFunction(at, device, spec)
      return { at, name: device.func ? `PCI slot ${device.slot}.${device.func}` : `PCI slot ${device.slot}` }
    }
    case 'pci-bridge':
      checkSlot(at, device.slot)
      return { at, name: `PCI slot ${device.slot}` }
    default: {
      if (device.port !== undefined) return placeInPort(key, device.port, device.slot, spec)
      checkSlot(at, device.slot)
      return { at, name: `PCI slot ${device.slot}` }
    }
  }
}

/** Slot 0 is the host bridge; the boards put their own bridge at 1 (pc) or 31 (q35). */
function checkSlot(at: string, slot: number): void {
  if (Number.isInteger(slot) && slot >= 2 && slot <= 30) return
  refuse(at, slot === 0 ? 'missing, want 2 to 30 or a port' : `${slot}: want 2 to 30`)
}

/** A guest looks at the other functions of a slot only where function 0 is there. */
function checkFirstFunction(at: string, { slot, func = 0 }: RootPortDevice, { devices }: VmSpec): void {
  const isFirst = (other: Device) => other.kind === 'root-port' && other.slot === slot && !other.func
  if (func === 0 || Object.values(devices).some(isFirst)) return
  refuse(at, `${slot}.${func}: want a root port of function 0 in this slot too`)
}

function placeInPort(key: string, port: SpecKey, slot: number, spec: VmSpec): Place {
  const at = pathOf('devices', key, 'port')
  const { machine } = spec.board
  if (chipsetOf(machine) !== 'q35') refuse(at, `machine ${machine} has no root ports`)
  if (spec.devices[port]?.kind !== 'root-port') refuse(at, `${shown(port)}: no such root port`)
  if (slot !== 0)
    refuse(pathOf('devices', key, 'slot'), `${slot}: a root port has none, want a port or a slot`)
  return { at, name: `root port ${shown(port)}` }
}
