import { ADDRESS_BITS, formatIp, maskHostBits, parseIp } from '../../base/ip-address.ts'
import type { PointToPoint } from '../../handlers/network/vm-metadata/point-to-point.ts'
import { UsageError } from '../command-line/parse.mjs'
import type { UserNetworkBackend, UserSubnet } from '../spec.ts'

/**
 * QEMU's user network answers for addresses of one subnet, and leads all others to the outside: the subnet has to hold
 * both ends, and room for a name server; a wide one would hide much of the outside.
 */
const PREFIX_LENGTHS = {
  ipv4: { shortest: 8, longest: 29 },
  ipv6: { shortest: 16, longest: 120 },
} as const

/**
 * A network without privileges in which the host's end of each link is QEMU itself: what the guest sends there reaches
 * this machine's loopback, what it sends elsewhere the outside. Throws {@link UsageError} for ends too far apart.
 */
export function userNetworkFor(links: readonly PointToPoint[]): UserNetworkBackend {
  return { kind: 'user-network', forwards: [], subnets: links.map(subnetOf) }
}

function subnetOf({ family, ip, peerIp }: PointToPoint): UserSubnet {
  const [own, peer] = [parseIp(ip), parseIp(peerIp)]
  const { shortest, longest } = PREFIX_LENGTHS[family]
  const prefixLength = own && peer ? Math.min(commonBits(own, peer), longest) : 0
  if (own === undefined || prefixLength < shortest) {
    throw new UsageError(
      `--metadata: ${ip} and ${peerIp} differ in their first ${shortest} bits, which QEMU's user network cannot span`,
    )
  }
  const network = maskHostBits(own, prefixLength)
  return {
    family,
    network: formatIp(network),
    prefixLength,
    host: peerIp,
    guest: ip,
    nameServer: firstFree(network, [ip, peerIp]),
  }
}

function commonBits(one: Uint8Array, other: Uint8Array): number {
  const bits = ADDRESS_BITS[one.length === 4 ? 'ipv4' : 'ipv6']
  for (let length = bits; length > 0; length--) {
    if (Buffer.compare(maskHostBits(one, length), maskHostBits(other, length)) === 0) return length
  }
  return 0
}

function firstFree(network: Uint8Array, taken: readonly string[]): string {
  const address = Uint8Array.from(network)
  const last = address.length - 1
  do address[last] = (address[last] ?? 0) + 1
  while (taken.includes(formatIp(address)))
  return formatIp(address)
}
