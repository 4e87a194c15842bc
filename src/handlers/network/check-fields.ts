import { AgentError } from '../../base/errors.ts'
import {
  ADDRESS_BITS,
  familyOf,
  formatIp,
  type IpFamily,
  type IpPrefix,
  maskHostBits,
  parseIp,
} from '../../base/ip-address.ts'
import { IPFamily } from '../../gen/types.ts'
import type { Link } from '../../os/network/network.ts'

/** An address of a request as text that is written like everybody's. */
export interface CheckedAddress {
  readonly family: IpFamily
  readonly address: string
}

/** The address of a field, of whatever family. Throws INVALID_ARGUMENT naming the field. */
export function checkAddress(field: string, text: string): CheckedAddress {
  const bytes = addressBytes(field, text)
  return { family: familyOf(bytes), address: formatIp(bytes) }
}

/** The address of a field that must be of this family. Throws INVALID_ARGUMENT naming the field. */
export function checkAddressOf(family: IpFamily, field: string, text: string): string {
  return formatIp(addressBytes(field, text, family))
}

/**
 * `a.b.c.d/len`, or an address alone, with the bits behind the prefix cleared: the kernel refuses them. Throws
 * INVALID_ARGUMENT naming the field.
 */
export function checkPrefix(family: IpFamily, field: string, text: string): IpPrefix {
  const [address = '', length, ...more] = text.split('/')
  if (more.length > 0) throw invalid(field, text, 'it has more than one /')
  const bytes = addressBytes(field, address, family)
  const prefixLength = length === undefined ? ADDRESS_BITS[family] : checkPrefixLength(family, field, length)
  return { address: formatIp(maskHostBits(bytes, prefixLength)), prefixLength }
}

function addressBytes(field: string, text: string, family?: IpFamily): Uint8Array {
  const bytes = parseIp(text)
  if (bytes === undefined) throw invalid(field, text, 'it is no IP address')
  if (family !== undefined && family !== familyOf(bytes))
    throw invalid(field, text, `the family is ${family}`)
  return bytes
}

/** A prefix length in decimal text. Throws INVALID_ARGUMENT naming the field. */
export function checkPrefixLength(family: IpFamily, field: string, text: string): number {
  const max = ADDRESS_BITS[family]
  if (!/^[0-9]{1,3}$/.test(text) || Number(text) > max)
    throw invalid(field, text, `the prefix length of ${family} is 0 to ${max}`)
  return Number(text)
}

/** The family that a field of the API names. Throws INVALID_ARGUMENT for a number that is none. */
export function checkFamily(field: string, family: number): IpFamily {
  if (family === IPFamily.v4) return 'ipv4'
  if (family === IPFamily.v6) return 'ipv6'
  throw invalid(field, String(family), 'the family is 0 (v4) or 1 (v6)')
}

/** A family as the API names it. */
export function apiFamily(family: IpFamily): IPFamily {
  return family === 'ipv4' ? IPFamily.v4 : IPFamily.v6
}

/** A hardware address in lower case. Throws INVALID_ARGUMENT naming the field. */
export function checkHardwareAddress(field: string, text: string): string {
  if (!/^[0-9a-f]{2}(:[0-9a-f]{2}){0,31}$/i.test(text))
    throw invalid(field, text, 'it is no hardware address (hexadecimal bytes with colons)')
  return text.toLowerCase()
}

/**
 * A checked hardware address is not longer than this link's: the kernel would take its beginning. It refuses a shorter
 * one itself. Throws INVALID_ARGUMENT naming the field.
 */
export function checkHardwareAddressFits(field: string, text: string, { name, hardwareAddress }: Link): void {
  if (hardwareAddress === '' || text.length <= hardwareAddress.length) return
  throw invalid(field, text, `those of ${name} are like ${hardwareAddress}`)
}

/** A number within bounds. Throws INVALID_ARGUMENT naming the field. */
export function checkNumber(field: string, value: number | bigint, max: number): number {
  if (value < 0 || value > max) throw invalid(field, String(value), `it is 0 to ${max}`)
  return Number(value)
}

/** INVALID_ARGUMENT: `routes[2].dest 'ten': it is no IP address`. */
export function invalid(field: string, value: string, reason: string): AgentError {
  return new AgentError('INVALID_ARGUMENT', `${field} '${value.slice(0, 128)}': ${reason}`)
}
