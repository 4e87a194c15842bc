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

/** An address of a request, in its canonical text form. */
export interface CheckedAddress {
  readonly family: IpFamily
  readonly address: string
}

/** Like all checks in this file, throws INVALID_ARGUMENT naming the field. */
export function checkAddress(field: string, text: string): CheckedAddress {
  const bytes = addressBytes(field, text)
  return { family: familyOf(bytes), address: formatIp(bytes) }
}

export function checkAddressOf(family: IpFamily, field: string, text: string): string {
  return formatIp(addressBytes(field, text, family))
}

/** Parses `a.b.c.d/len` or a plain address, and clears the host bits, which the kernel would refuse. */
export function checkPrefix(family: IpFamily, field: string, text: string): IpPrefix {
  const [address = '', length, ...more] = text.split('/')
  if (more.length > 0) throw invalid(field, text, 'more than one /')
  const bytes = addressBytes(field, address, family)
  const prefixLength = length === undefined ? ADDRESS_BITS[family] : checkPrefixLength(family, field, length)
  return { address: formatIp(maskHostBits(bytes, prefixLength)), prefixLength }
}

function addressBytes(field: string, text: string, family?: IpFamily): Uint8Array {
  const bytes = parseIp(text)
  if (bytes === undefined) throw invalid(field, text, 'not an IP address')
  if (family !== undefined && family !== familyOf(bytes))
    throw invalid(field, text, `want an ${family} address`)
  return bytes
}

export function checkPrefixLength(family: IpFamily, field: string, text: string): number {
  const max = ADDRESS_BITS[family]
  if (!/^[0-9]{1,3}$/.test(text) || Number(text) > max)
    throw invalid(field, text, `want a prefix length of 0 to ${max} for ${family}`)
  return Number(text)
}

export function checkFamily(field: string, family: number): IpFamily {
  if (family === IPFamily.v4) return 'ipv4'
  if (family === IPFamily.v6) return 'ipv6'
  throw invalid(field, String(family), 'want 0 (v4) or 1 (v6)')
}

export function apiFamily(family: IpFamily): IPFamily {
  return family === 'ipv4' ? IPFamily.v4 : IPFamily.v6
}

export function checkHardwareAddress(field: string, text: string): string {
  if (!/^[0-9a-f]{2}(:[0-9a-f]{2}){0,31}$/i.test(text))
    throw invalid(field, text, 'not a hardware address, want hexadecimal bytes with colons')
  return text.toLowerCase()
}

/** The kernel would use only the beginning of an address that is longer than the link's; it refuses a shorter one. */
export function checkHardwareAddressFits(field: string, text: string, { name, hardwareAddress }: Link): void {
  if (hardwareAddress === '' || text.length <= hardwareAddress.length) return
  throw invalid(field, text, `too long for ${name}, want one like ${hardwareAddress}`)
}

export function checkNumber(field: string, value: number | bigint, max: number): number {
  if (value < 0 || value > max) throw invalid(field, String(value), `want 0 to ${max}`)
  return Number(value)
}

/** The INVALID_ARGUMENT error of a field: `routes[2].dest "ten": not an IP address`. */
export function invalid(field: string, value: string, reason: string): AgentError {
  return new AgentError('INVALID_ARGUMENT', `${field} "${value.slice(0, 128)}": ${reason}`)
}
