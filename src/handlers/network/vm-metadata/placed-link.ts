import { ADDRESS_BITS } from '../../../base/ip-address.ts'
import type { LinkAddress, Route } from '../../../os/network/network.ts'
import type { PointToPoint } from './point-to-point.ts'

/** RTPROT_ of the routes that metadata makes, by which they are known again: a number that no routing daemon has. */
export const METADATA_PROTOCOL = 77
/** IFA_F_NODAD: with two ends there is nobody who could have the address too, so it can be used at once. */
const NO_DUPLICATE_DETECTION = 2
/**
 * RTNH_F_ONLINK: the gateway is on the link, whatever other routes say. The kernel makes the route to an IPv6 peer only
 * when its work queue comes to it (addrconf_dad_work), and not again after the link was down.
 */
const ON_LINK = 4

/** A link to the host at its place in the guest. */
export type PlacedLink = PointToPoint & { readonly linkIndex: number }

/** The address of the guest's end. */
export function addressOf({ family, ip, peerIp, linkIndex }: PlacedLink): LinkAddress {
  const prefixLength = ADDRESS_BITS[family]
  const flags = family === 'ipv6' ? NO_DUPLICATE_DETECTION : 0
  return { linkIndex, family, address: ip, peer: peerIp, prefixLength, scope: 0, flags }
}

/** The default route by the host's end. */
export function routeOf({ family, peerIp, linkIndex }: PlacedLink): Route {
  const destination = { address: family === 'ipv4' ? '0.0.0.0' : '::', prefixLength: 0 }
  const way = { gateway: peerIp, linkIndex, flags: ON_LINK }
  return { family, destination, ...way, scope: 0, protocol: METADATA_PROTOCOL }
}

/** Whether the two are one address of one link, with one peer. */
export function isSameAddress(one: LinkAddress, other: LinkAddress): boolean {
  return one.linkIndex === other.linkIndex && one.address === other.address && one.peer === other.peer
}

/** Whether the two lead to one gateway on one link. */
export function isSameGateway(one: Route, other: Route): boolean {
  return one.family === other.family && one.linkIndex === other.linkIndex && one.gateway === other.gateway
}
