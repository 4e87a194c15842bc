import { ADDRESS_BITS } from '../../../base/ip-address.ts'
import type { PointToPoint } from '../../../base/vm-metadata/point-to-point.ts'
import type { LinkAddress, Route } from '../../../os/network/network.ts'

/** The RTPROT_ number that marks the routes of metadata; no routing daemon uses it. */
export const METADATA_PROTOCOL = 77
/** IFA_F_NODAD: on a point-to-point link no other host can have the address, so it is used at once. */
const NO_DUPLICATE_DETECTION = 2
/**
 * RTNH_F_ONLINK: the gateway is on the link, whatever other routes say. The kernel adds the route to an IPv6 peer only
 * later, in a work queue (addrconf_dad_work), and not again after the link was down.
 */
const ON_LINK = 4

export type PlacedLink = PointToPoint & { readonly linkIndex: number }

export function addressOf({ family, ip, peerIp, linkIndex }: PlacedLink): LinkAddress {
  const prefixLength = ADDRESS_BITS[family]
  const flags = family === 'ipv6' ? NO_DUPLICATE_DETECTION : 0
  return { linkIndex, family, address: ip, peer: peerIp, prefixLength, scope: 0, flags }
}

export function routeOf({ family, peerIp, linkIndex }: PlacedLink): Route {
  const destination = { address: family === 'ipv4' ? '0.0.0.0' : '::', prefixLength: 0 }
  const way = { gateway: peerIp, linkIndex, flags: ON_LINK }
  return { family, destination, ...way, scope: 0, protocol: METADATA_PROTOCOL }
}

export function isSameAddress(one: LinkAddress, other: LinkAddress): boolean {
  return one.linkIndex === other.linkIndex && one.address === other.address && one.peer === other.peer
}

export function isSameGateway(one: Route, other: Route): boolean {
  return one.family === other.family && one.linkIndex === other.linkIndex && one.gateway === other.gateway
}
