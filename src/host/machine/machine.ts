import { MAX_CPUS, MAX_MEMORY_MIB, MAX_MEMORY_SLOTS } from '../spec/limits.ts'
import { boolean, integer, list, object, oneOf, optional, type Read, record, text } from './document/shape.ts'
import { commandLine, hostPath, label, uuid } from './document/words.ts'

/** The version of the form in which machines and documents are written. */
export const API_VERSION = 'microvm/v1'

/** The machines whose hardware is the same in each QEMU, and `microvm`, which has no versions. */
export const FIXED_MACHINES = ['pc-q35-7.2', 'pc-i440fx-7.2', 'microvm'] as const

export const MAX_CONTROLLERS = 256
const MAX_UNPLUGGED = 1024

/** A hundred years. */
export const MAX_CLOCK_SECONDS = 3_155_760_000

/** Keys of what the firmware loads, beside those of a machine's own backends. */
export const FIRMWARE_KEYS = { kernel: 'firmware-kernel', initrd: 'firmware-initrd' } as const

const memoryMib = integer(1, MAX_MEMORY_MIB, 'MiB')
const cpuCount = integer(1, MAX_CPUS)
const key = text(/^[A-Za-z0-9][\w.-]{0,127}$/, 'a key')

const pci = object({
  type: oneOf(['pci']),
  /** 0 is the first bus; the others are those of a port or bridge with this index. */
  bus: integer(0, 255),
  slot: integer(0, 31),
  function: integer(0, 7),
})
/** The place of a disk at its controller. IDE has the bus and the unit, SATA the unit, SCSI the target. */
const drive = object({
  type: oneOf(['drive']),
  controller: key,
  bus: integer(0, 5),
  target: integer(0, 255),
  unit: integer(0, 5),
})
/** A port of a virtio-serial or USB controller. */
const port = object({ type: oneOf(['port']), controller: key, port: integer(0, 31) })

/** Reads one of the kinds of addresses, by its field `type`. */
const address = {
  read: (value: unknown, at: string): Read<typeof pci> | Read<typeof drive> | Read<typeof port> => {
    const type = typeof value === 'object' && value !== null && 'type' in value ? value.type : undefined
    if (type === 'drive') return drive.read(value, at)
    return type === 'port' ? port.read(value, at) : pci.read(value, at)
  },
  schema: { anyOf: [pci.schema, drive.schema, port.schema] },
}
export type Address = ReturnType<typeof address.read>
export type PciAddress = Read<typeof pci>

const scalar = {
  read: (value: unknown, at: string): string | number | boolean =>
    typeof value === 'boolean' || typeof value === 'number' ? value : anyText.read(value, at),
  schema: { type: ['string', 'number', 'boolean'] },
}
const anyText = text(/^[^\0]{0,4096}$/, 'a text, a number, true or false')
export type Scalar = ReturnType<typeof scalar.read>

const device = object({
  /** What it is for. */
  kind: key,
  /** QEMU's name of the device; for one that the board has anyway, what it is. */
  model: key,
  /** Whether the board brings it, so that QEMU needs no word for it. */
  builtIn: optional(boolean),
  address: optional(address),
  /** By QEMU's names: what the guest sees of the device. */
  properties: record(scalar),
  backend: optional(key),
  /** It was plugged in, and is not of the document. */
  plugged: optional(boolean),
})
export type MachineDevice = Read<typeof device>

/** What stands behind a device, by the name that a host's catalogue has for it. Of a privileged document also a path. */
const backend = object({
  kind: key,
  name: optional(label),
  path: optional(hostPath),
  options: record(scalar),
  /** Another one stood there in the document. */
  replaced: optional(boolean),
})
export type MachineBackend = Read<typeof backend>

const cell = object({ cpus: list(integer(0, MAX_CPUS - 1), MAX_CPUS), memoryMib })
export type NumaCell = Read<typeof cell>

const timers = object({
  rtc: optional(oneOf(['catchup', 'delay'])),
  pit: optional(oneOf(['catchup', 'delay', 'discard'])),
  hpet: boolean,
  hypervclock: boolean,
})

/** A whole machine: what the guest sees, and the names of what stands behind it. Plain data, which is written down. */
export const machineShape = object({
  apiVersion: oneOf([API_VERSION]),
  kind: oneOf(['Machine']),
  name: optional(label),
  uuid,
  board: object({ machine: oneOf(FIXED_MACHINES), architecture: oneOf(['x86_64']), acpi: boolean }),
  memory: object({
    sizeMib: memoryMib,
    /** What the guest has when it begins; the balloon holds the rest. */
    currentMib: memoryMib,
    /** With what can be added while it runs. */
    maximumMib: memoryMib,
    slots: integer(0, MAX_MEMORY_SLOTS),
    hugePages: optional(oneOf(['2M', '1G'])),
  }),
  cpu: object({
    model: key,
    /** `exact`: a host that lacks a feature of the model is refused. */
    match: oneOf(['exact', 'host']),
    features: record(boolean),
    /** What the model and its features were when the machine was made: properties of QEMU's model `base`. */
    expansion: optional(record(scalar)),
    count: cpuCount,
    /** The CPUs that are there at the start. */
    present: cpuCount,
    topology: object({ sockets: cpuCount, cores: cpuCount, threads: cpuCount }),
    /** Each has a CPU of the host for itself, of this pool of the catalogue or of any. */
    exclusive: optional(object({ pool: optional(key) })),
  }),
  /** Without a host, `match-host` stays a wish. */
  numa: object({ matchHost: boolean, cells: list(cell, 128) }),
  firmware: object({
    type: oneOf(['bios', 'uefi']),
    secureBoot: boolean,
    variables: optional(key),
    kernel: optional(key),
    initrd: optional(key),
    commandLine: optional(commandLine),
  }),
  clock: object({
    basis: oneOf(['utc', 'localtime']),
    /** From the basis; also by how much the guest has set its clock. */
    adjustmentSeconds: integer(-MAX_CLOCK_SECONDS, MAX_CLOCK_SECONDS),
    timers,
  }),
  hyperv: optional(
    object({ relaxed: boolean, vapic: boolean, spinlockRetries: optional(integer(4095, 0xffff_ffff)) }),
  ),
  smbios: record(label),
  iothreads: integer(0, 64),
  devices: record(device),
  backends: record(backend),
  /** Keys of the document's devices that were unplugged. */
  unplugged: optional(list(key, MAX_UNPLUGGED)),
  /** What holds less than it was wished, such as `not given here: hyperv (no KVM)`. */
  notes: list(text(/^.{1,500}$/, 'a sentence'), 64),
})
export type Machine = Read<typeof machineShape>

export function isPc({ board }: Pick<Machine, 'board'>): boolean {
  return board.machine === 'pc-i440fx-7.2'
}

export function isQ35({ board }: Pick<Machine, 'board'>): boolean {
  return board.machine === 'pc-q35-7.2'
}

export function hasPci({ board }: Pick<Machine, 'board'>): boolean {
  return board.machine !== 'microvm'
}

/** Such as `00:05.0`. */
export function placeName({ bus, slot, function: func }: PciAddress): string {
  const [a, b] = [bus, slot].map((number) => number.toString(16).padStart(2, '0'))
  return `${a}:${b}.${func}`
}
