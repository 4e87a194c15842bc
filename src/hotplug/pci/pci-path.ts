import { AgentError } from '../../base/errors.ts'

export interface PciSlot {
  readonly slot: number
  readonly func: number
}

/** The location of a PCI device, as the host names it. */
export interface PciPath {
  readonly text: string
  /** The bus number of the root complex: 0, or that of an extra root complex (pxb). */
  readonly rootBus: number
  /** The slots of the bridges on the way, then that of the device. */
  readonly slots: readonly [PciSlot, ...PciSlot[]]
}

const HIGHEST_SLOT = 0x1f

/** From this number on, the first of three or more segments is the bus of an extra root complex. */
const LOWEST_EXTRA_ROOT_BUS = 0x20

/** Parses `SS[.F]/SS[.F]/…` in hexadecimal: `02/03` is slot 3 behind the bridge in slot 2. Throws INVALID_ARGUMENT. */
export function parsePciPath(text: string): PciPath {
  const segments = text.split('/')
  const [first = ''] = segments
  const isExtraRoot =
    segments.length >= 3 &&
    /^[0-9a-f]{2}$/i.test(first) &&
    Number.parseInt(first, 16) >= LOWEST_EXTRA_ROOT_BUS
  const [device, ...behind] = (isExtraRoot ? segments.slice(1) : segments).map((segment) =>
    parseSlot(text, segment),
  )
  if (device === undefined) throw invalid(text, 'no segments')
  return { text, rootBus: isExtraRoot ? Number.parseInt(first, 16) : 0, slots: [device, ...behind] }
}

/** The name of a device on `bus` (`0000:01`) in sysfs: `0000:01:03.0`. */
export function deviceName(bus: string, { slot, func }: PciSlot): string {
  return `${bus}:${hex(slot)}.${func}`
}

/** The name of the root bus: `0000:00`. */
export function rootBusName({ rootBus }: PciPath): string {
  return `0000:${hex(rootBus)}`
}

function parseSlot(path: string, segment: string): PciSlot {
  const [, slotDigits, funcDigit = '0'] = /^([0-9a-f]{2})(?:\.([0-9a-f]))?$/i.exec(segment) ?? []
  if (slotDigits === undefined) throw invalid(path, `segment "${segment}", want SS or SS.F`)
  const slot = Number.parseInt(slotDigits, 16)
  const func = Number.parseInt(funcDigit, 16)
  if (slot > HIGHEST_SLOT) throw invalid(path, `slot ${slotDigits}, want at most 1f`)
  if (func > 7) throw invalid(path, `function ${funcDigit}, want at most 7`)
  return { slot, func }
}

function invalid(path: string, reason: string): AgentError {
  return new AgentError('INVALID_ARGUMENT', `PCI path "${path}": ${reason}`)
}

function hex(value: number): string {
  return value.toString(16).padStart(2, '0')
}
