import { refuse } from '../../spec/component-path.ts'
import { either, integer, list, object, oneOf, optional, type Read, type Shape, text } from './shape.ts'

/** Shapes of values that several features have. */

/** The abstract name of something that the host's catalogue provides, or the name of a device. */
export const catalogueName = text(/^[A-Za-z0-9][\w.-]{0,62}$/, 'a name of 1 to 63 letters, digits, _, . or -')

export const uuid = text(/^[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$/, 'a UUID')

/** Up to 20 characters of it are what a disk shows; a longer one is for SCSI. */
export const serial = text(/^[\w.-]{1,36}$/, '1 to 36 letters, digits, _, . or -')

export const macAddress = text(/^([0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}$/, 'six bytes such as 52:54:00:12:34:56')

export const ipAddress = text(/^[\da-fA-F.:]{2,45}$/, 'an address such as 10.0.0.2')

/** A line of SMBIOS. QEMU would take a comma for the end of the value. */
export const label = text(/^[ -+\--~]{1,64}$/, '1 to 64 printable characters of ASCII without commas')

export const hostPath = text(/^\/\P{Cc}{0,4094}$/u, 'an absolute path')

export const commandLine = text(/^\P{Cc}{0,1920}$/u, 'at most 1920 printable characters')

/** What only `spec.domain` may name, because it is the host's. */
export const hostsOwn: Shape<string | undefined> = {
  read: (_, at) => refuse(at, "is the host's, want a name of the catalogue"),
  schema: { not: {} },
  isOptional: true,
}

export const bootOrder = integer(1, 1024)

const pciPlace = object({
  type: optional(oneOf(['pci'])),
  domain: optional(integer(0, 0)),
  bus: optional(integer(0, 255)),
  slot: integer(0, 31),
  function: optional(integer(0, 7)),
})

const PCI_TEXT = /^(?:0000:)?([0-9a-f]{2}):([01][0-9a-f])\.([0-7])$/

/** `00:05.0`, or its parts. */
const anyPciAddress = either(text(PCI_TEXT, 'an address such as 00:05.0'), pciPlace, (short, at) => {
  const [bus = 0, slot = 0, func = 0] = (PCI_TEXT.exec(short) ?? [])
    .slice(1)
    .map((digits) => parseInt(digits, 16))
  return pciPlace.read({ bus, slot, function: func }, at)
})

export const pciAddress = { ...anyPciAddress, schema: { $ref: '#/definitions/pciAddress' } }

/** Parts of the JSON Schema that others refer to. */
export const DEFINITIONS = { pciAddress: anyPciAddress.schema }

export type PciWish = Read<typeof pciAddress>

/** Numbers of CPUs, as a list or as text such as `0-3,8`. */
export const cpuNumbers = either(
  text(/^\d{1,3}(-\d{1,3})?(,\d{1,3}(-\d{1,3})?)*$/, 'numbers such as 0-3,8'),
  list(integer(0, 254), 255),
  (short, at) => short.split(',').flatMap((part) => rangeOf(part, at)),
)

function rangeOf(part: string, at: string): readonly number[] {
  const [first = 0, last = first] = part.split('-').map(Number)
  if (last < first || last > 254) refuse(at, `${part}: want 0 to 254, the lower number first`)
  return Array.from({ length: last - first + 1 }, (_, index) => first + index)
}
