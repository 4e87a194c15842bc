import { errnoOf, messageOf } from '../../../base/errors.ts'
import type { IpFamily } from '../../../base/ip-address.ts'
import type { Logger } from '../../../base/log.ts'
import type { LinkAddress, Network, Route } from '../../../os/network/network.ts'
import {
  addressOf,
  isSameAddress,
  isSameWay,
  METADATA_PROTOCOL,
  type PlacedLink,
  routeOf,
} from './placed-link.ts'

/** RTPROT_RA: a router on the link offered it. What the host says counts more. */
const ROUTER_ADVERTISEMENT = 9
/** What the priority of a route is that names none. */
const USUAL_PRIORITY: Readonly<Record<IpFamily, number>> = { ipv4: 0, ipv6: 1024 }

interface Work {
  readonly network: Network
  readonly log: Logger
  /** What was there before the first change. */
  readonly addresses: readonly LinkAddress[]
  readonly routes: readonly Route[]
}

/**
 * Makes `wanted` all that metadata has given the guest: for each family an address with its peer, and a default route by
 * the peer. What it gave before and no longer does is taken back. What others made stays, a default route too: a call of
 * the API, which came later, counts more. A family that the kernel refuses stays as it was, with a warning. Tells whether
 * there was anything to change. The link has to be up.
 */
export function applyLinks(network: Network, wanted: readonly PlacedLink[], log: Logger): boolean {
  const work = { network, log, addresses: network.addresses(), routes: network.routes() }
  let changed = false
  const refused = new Set<IpFamily>()
  for (const link of wanted) {
    try {
      changed = applyLink(work, link) || changed
    } catch (error) {
      refused.add(link.family)
      log.warn('VM metadata refused by the kernel', { family: link.family, error: messageOf(error) })
    }
  }
  return takeBack(work, wanted, refused) || changed
}

function applyLink(work: Work, link: PlacedLink): boolean {
  const { network, addresses } = work
  const address = addressOf(link)
  const isNew = !addresses.some((other) => isSameAddress(other, address)) && added(network, address)
  try {
    return routeByPeer(work, link) || isNew
  } catch (error) {
    if (isNew) network.removeAddress(address)
    throw error
  }
}

/** False when somebody has given the link this address in another way, which will do as well. */
function added(network: Network, address: LinkAddress): boolean {
  try {
    network.addAddress(address)
    return true
  } catch (error) {
    if (errnoOf(error) === 'EEXIST') return false
    throw error
  }
}

function routeByPeer({ network, log, routes }: Work, link: PlacedLink): boolean {
  const route = routeOf(link)
  const rivals = routes.filter((other) => isRival(other, route))
  if (rivals.some((other) => isSameWay(other, route))) return false
  const [rival] = rivals
  if (rival === undefined) {
    network.addRoute(route)
    return true
  }
  if (rival.protocol !== METADATA_PROTOCOL && rival.protocol !== ROUTER_ADVERTISEMENT) {
    log.info('default route left as it is', { family: link.family, gateway: rival.gateway })
    return false
  }
  network.replaceRoute(route)
  return true
}

/** Removes what metadata gave and is not wanted any more: its routes, and the addresses whose peers they led to. */
function takeBack(work: Work, wanted: readonly PlacedLink[], refused: ReadonlySet<IpFamily>): boolean {
  const ours = work.routes.filter(
    ({ protocol, family }) => protocol === METADATA_PROTOCOL && !refused.has(family),
  )
  const wantedRoutes = wanted.map(routeOf)
  const wantedAddresses = wanted.map(addressOf)
  const replaced = work.network.routes()
  const routes = ours
    .filter((route) => !wantedRoutes.some((other) => isSameWay(other, route)))
    .filter((route) =>
      replaced.some((other) => other.protocol === METADATA_PROTOCOL && isSameWay(other, route)),
    )
  const addresses = work.addresses
    .filter(({ linkIndex, peer }) =>
      ours.some((route) => route.linkIndex === linkIndex && route.gateway === peer),
    )
    .filter((address) => !wantedAddresses.some((other) => isSameAddress(other, address)))
  for (const route of routes) work.network.removeRoute(route)
  for (const address of addresses) work.network.removeAddress(address)
  return routes.length + addresses.length > 0
}

/** Whether the kernel would take one of the two routes for the other. */
function isRival(one: Route, other: Route): boolean {
  const priorityOf = ({ priority, family }: Route) => priority ?? USUAL_PRIORITY[family]
  const isDefault = one.destination.prefixLength === 0 && one.source === undefined
  return isDefault && one.family === other.family && priorityOf(one) === priorityOf(other)
}
