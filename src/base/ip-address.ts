export type IpFamily = 'ipv4' | 'ipv6'

export interface IpPrefix {
  readonly address: string
  readonly prefixLength: number
}

export const ADDRESS_BITS: Readonly<Record<IpFamily, number>> = { ipv4: 32, ipv6: 128 }

const ZERO = 0x30

/** The 4 or 16 bytes of an address; undefined for any other text, such as one with a zone, brackets or leading zeros. */
export function parseIp(text: string): Uint8Array | undefined {
  return text.includes(':') ? parseIpv6(text) : parseIpv4(text)
}

export function familyOf(bytes: Uint8Array): IpFamily {
  return bytes.length === 4 ? 'ipv4' : 'ipv6'
}

/** The text of an address of 4 or 16 bytes, in the form of RFC 5952. */
export function formatIp(bytes: Uint8Array): string {
  return bytes.length === 4 ? bytes.join('.') : formatIpv6(bytes)
}

export function maskHostBits(bytes: Uint8Array, prefixLength: number): Uint8Array {
  return bytes.map((byte, index) => {
    const kept = Math.min(8, Math.max(0, prefixLength - index * 8))
    return byte & (0xff << (8 - kept))
  })
}

/** The last address of an IPv4 network. */
export function broadcastOf(bytes: Uint8Array, prefixLength: number): string {
  const network = maskHostBits(bytes, prefixLength)
  const hosts = maskHostBits(Uint8Array.of(255, 255, 255, 255), prefixLength)
  return formatIp(network.map((byte, index) => byte | (~at(hosts, index) & 0xff)))
}

/** The prefix length of an IPv4 mask: 24 for `255.255.255.0`; undefined for any other text. */
export function prefixLengthOfMask(mask: string): number | undefined {
  const bits = parseIp(mask)
  if (bits?.length !== 4) return undefined
  const digits = Array.from(bits, (byte) => byte.toString(2).padStart(8, '0')).join('')
  return /^1*0*$/.test(digits) ? digits.replaceAll('0', '').length : undefined
}

/** Parses by character, because a slower parser would dominate the time for a long list of routes. */
function parseIpv4(text: string): Uint8Array | undefined {
  const bytes = new Uint8Array(4)
  let part = 0
  let digits = 0
  let value = 0
  for (let index = 0; index < text.length; index++) {
    const digit = text.charCodeAt(index) - ZERO
    if (digit >= 0 && digit <= 9) {
      // Some programs read a leading zero as octal, others as decimal.
      if (digits > 0 && value === 0) return undefined
      value = value * 10 + digit
      digits += 1
      if (value > 255) return undefined
    } else if (text[index] === '.' && digits > 0 && part < 3) {
      bytes[part] = value
      part += 1
      digits = 0
      value = 0
    } else return undefined
  }
  if (part !== 3 || digits === 0) return undefined
  bytes[3] = value
  return bytes
}

function parseIpv6(text: string): Uint8Array | undefined {
  const halves = text.split('::')
  if (halves.length > 2) return undefined
  const [head, tail] = halves.map((half, index) => groupsOf(half, index === halves.length - 1))
  if (head === undefined) return undefined
  if (halves.length === 1) return head.length === 16 ? Uint8Array.from(head) : undefined
  // `::` stands for at least one group of zeros.
  if (tail === undefined || head.length + tail.length > 14) return undefined
  const bytes = new Uint8Array(16)
  bytes.set(head)
  bytes.set(tail, 16 - tail.length)
  return bytes
}

/** The bytes of groups between colons. With `atEnd` the last group may be an IPv4 address. */
function groupsOf(text: string, atEnd: boolean): readonly number[] | undefined {
  if (text === '') return []
  const bytes: number[] = []
  const groups = text.split(':')
  for (const [index, group] of groups.entries()) {
    if (/^[0-9a-f]{1,4}$/i.test(group)) {
      const value = Number.parseInt(group, 16)
      bytes.push(value >> 8, value & 0xff)
      continue
    }
    const ipv4 = atEnd && index === groups.length - 1 ? parseIpv4(group) : undefined
    if (ipv4 === undefined) return undefined
    bytes.push(...ipv4)
  }
  return bytes
}

function formatIpv6(bytes: Uint8Array): string {
  const groups = Array.from(
    { length: 8 },
    (_, index) => at(bytes, index * 2) * 256 + at(bytes, index * 2 + 1),
  )
  const mapped = groups.slice(0, 5).every((group) => group === 0) && groups[5] === 0xffff
  if (mapped) return `::ffff:${bytes.slice(12).join('.')}`
  const zeros = longestZeros(groups)
  const text = (from: number, to: number) =>
    groups
      .slice(from, to)
      .map((group) => group.toString(16))
      .join(':')
  if (zeros === undefined) return text(0, 8)
  return `${text(0, zeros.start)}::${text(zeros.start + zeros.length, 8)}`
}

/** The first of the longest runs of two or more zeros (RFC 5952, section 4.2). */
function longestZeros(
  groups: readonly number[],
): { readonly start: number; readonly length: number } | undefined {
  let longest: { readonly start: number; readonly length: number } | undefined
  for (let start = 0; start < groups.length; start++) {
    let length = 0
    while (groups[start + length] === 0) length += 1
    if (length >= 2 && length > (longest?.length ?? 0)) longest = { start, length }
  }
  return longest
}

function at(bytes: Uint8Array, index: number): number {
  return bytes[index] ?? 0
}
