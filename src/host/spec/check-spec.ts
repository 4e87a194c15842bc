import { AgentError } from '../../base/errors.ts'
import type { Backend, Device, NvdimmDevice, VmSpec } from './spec.ts'

type Bus = Extract<Device, { kind: 'root-port' | 'pci-bridge' }>

/** The backends that each kind of device accepts. */
const BACKENDS_OF: Readonly<Record<Exclude<Device, Bus>['kind'], readonly Backend['kind'][]>> = {
  disk: ['file'],
  nvdimm: ['file'],
  nic: ['user-network', 'tap'],
  vsock: ['vhost-vsock', 'vhost-user'],
  serial: ['console'],
  'virtio-console': ['console'],
  'fw-cfg': ['content'],
  share: ['vhost-user', 'folder'],
}

/**
 * Throws INVALID_ARGUMENT naming the component when no machine can be made from the specification: a backend that is
 * missing, unsuitable, shared or unused, a PCI slot used twice, a device that the machine type lacks.
 */
export function checkSpec(spec: VmSpec): void {
  const unused = new Map<string, Backend>(Object.entries(spec.backends))
  const slots = new Map<string, string>()
  for (const [key, device] of Object.entries(spec.devices)) {
    if (device.kind === 'root-port' || device.kind === 'pci-bridge') checkBus(key, device, spec)
    else checkBackend(key, device, unused)
    if ('slot' in device && spec.board.machine !== 'microvm') checkSlot(key, device, slots)
    checkDevice(key, device)
    if (device.kind === 'disk' && device.interface === 'nvme' && spec.board.machine === 'microvm') {
      refuse(key, 'machine microvm has no PCI, which NVMe disks need')
    }
    if (device.kind === 'nvdimm') checkNvdimm(key, device, spec)
  }
  for (const key of unused.keys()) refuse(key, 'no device uses this backend')
  for (const key of Object.keys(spec.devices)) {
    if (Object.hasOwn(spec.backends, key)) refuse(key, 'key of a backend too, want another')
  }
  const { commandLine, memoryMib, cpus, machine, room } = spec.board
  if (/[\n\0]/.test(commandLine)) refuse('board', 'kernel command line: has a line break')
  if (machine === 'microvm' && room !== undefined)
    refuse('board', 'machine microvm has no room for CPUs or memory')
  if (!(memoryMib > 0 && cpus > 0)) refuse('board', 'memory or CPUs: want more than 0')
}

function checkBus(key: string, { kind }: Bus, { board: { machine } }: VmSpec): void {
  if (kind === 'root-port' && machine !== 'q35') refuse(key, `machine ${machine} has no root ports`)
  if (machine === 'microvm') refuse(key, 'machine microvm has no PCI, which a bridge needs')
}

function checkBackend(key: string, device: Exclude<Device, Bus>, unused: Map<string, Backend>): void {
  const backend = unused.get(device.backend)
  if (backend === undefined) refuse(key, `backend ${device.backend}: missing or already used`)
  if (!BACKENDS_OF[device.kind].includes(backend.kind)) {
    refuse(key, `backend ${device.backend}: ${backend.kind} not possible for a ${device.kind}`)
  }
  unused.delete(device.backend)
}

function checkSlot(
  key: string,
  device: Extract<Device, { readonly slot: number }>,
  taken: Map<string, string>,
): void {
  const { slot } = device
  const func = device.kind === 'root-port' ? (device.func ?? 0) : 0
  // Slot 0 is the host bridge; the boards put their own bridge at 1 (pc) or 31 (q35).
  if (!Number.isInteger(slot) || slot < 2 || slot > 30)
    refuse(key, `PCI slot ${slot}: out of range, want 2 to 30`)
  if (!Number.isInteger(func) || func < 0 || func > 7)
    refuse(key, `PCI function ${func}: out of range, want 0 to 7`)
  const place = func === 0 ? `${slot}` : `${slot}.${func}`
  const other = taken.get(place)
  if (other !== undefined) refuse(key, `PCI slot ${place}: already used by ${other}`)
  taken.set(place, key)
}

function checkDevice(key: string, device: Device): void {
  if (device.kind === 'disk' && !/^[\w-]{1,20}$/.test(device.serial)) {
    refuse(key, `serial "${device.serial}": invalid, want 1 to 20 letters, digits, _ or -`)
  }
  if (device.kind === 'nic' && !/^([0-9a-f]{2}:){5}[0-9a-f]{2}$/.test(device.mac)) {
    refuse(key, `MAC address "${device.mac}": invalid, want lower case`)
  }
  if (device.kind === 'vsock' && !(device.cid >= 3 && device.cid < 0xffff_ffff)) {
    refuse(key, `context id ${device.cid}: reserved, want 3 or above`)
  }
  if (device.kind === 'share' && !/^[\w-]{1,36}$/.test(device.tag)) {
    refuse(key, `tag "${device.tag}": invalid, want 1 to 36 letters, digits, _ or -`)
  }
}

/** The file may be the only copy of an image, and whatever the guest writes to its memory would reach it. */
function checkNvdimm(key: string, device: NvdimmDevice, spec: VmSpec): void {
  const backend = spec.backends[device.backend]
  if (spec.board.machine === 'microvm') refuse(key, 'machine microvm has no persistent memory')
  if (backend?.kind === 'file' && backend.access !== 'read-only')
    refuse(key, `backend ${device.backend}: ${backend.access}, want read-only`)
  if (device.sizeBytes <= 0 || device.sizeBytes % PERSISTENT_MEMORY_UNIT !== 0)
    refuse(key, `size ${device.sizeBytes}: want a multiple of 2 MiB`)
}

/** The kernel describes memory in units of this size. */
const PERSISTENT_MEMORY_UNIT = 2 * 2 ** 20

function refuse(key: string, reason: string): never {
  throw new AgentError('INVALID_ARGUMENT', `VM specification ${key}: ${reason}`)
}
