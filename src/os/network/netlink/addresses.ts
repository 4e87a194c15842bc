import { ADDRESS_BITS, formatIp, type IpFamily, type IpPrefix, parseIp } from '../../../base/ip-address.ts'
import { kernelError } from '../../errors.ts'

/** AF_INET and AF_INET6. */
export const FAMILY_NUMBERS: Readonly<Record<IpFamily, number>> = { ipv4: 2, ipv6: 10 }

export function familyOfNumber(number: number): IpFamily | undefined {
  return number === 2 ? 'ipv4' : number === 10 ? 'ipv6' : undefined
}

/** Throws EINVAL, naming the address, when it is not of that family. */
export function ipBytes(address: string, family: IpFamily): Uint8Array {
  const bytes = parseIp(address)
  if (bytes?.length !== ADDRESS_BITS[family] / 8)
    throw kernelError('encode', `${family} address '${address}'`, 'EINVAL')
  return bytes
}

export function ipText(bytes: Buffer | undefined): string | undefined {
  return bytes === undefined ? undefined : formatIp(bytes)
}

/** Without an address, the prefix of all addresses. */
export function prefixOf(bytes: Buffer | undefined, prefixLength: number, family: IpFamily): IpPrefix {
  return { address: formatIp(bytes ?? new Uint8Array(ADDRESS_BITS[family] / 8)), prefixLength }
}

/** Throws EINVAL, naming the text, when it is not a hardware address. */
export function hardwareBytes(address: string): Buffer {
  if (!/^[0-9a-f]{2}(:[0-9a-f]{2})*$/i.test(address))
    throw kernelError('encode', `hardware address '${address}'`, 'EINVAL')
  return Buffer.from(address.replaceAll(':', ''), 'hex')
}

/** `02:00:00:00:00:01`; empty without bytes. */
export function hardwareText(bytes: Buffer | undefined): string {
  return (bytes?.toString('hex').match(/../g) ?? []).join(':')
}
