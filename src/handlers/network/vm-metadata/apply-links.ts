import { errnoOf, messageOf } from '../../../base/errors.ts'
import type { IpFamily } from '../../../base/ip-address.ts'
import type { Logger } from '../../../base/log.ts'
import type { LinkAddress, Network, Route } from '../../../os/network/network.ts'
import {
  addressOf,
  isSameAddress,
  isSameGateway,
  METADATA_PROTOCOL,
  type PlacedLink,
  routeOf,
} from './placed-link.ts'

/** RTPROT_RA: a route from a router advertisement, which the host's metadata overrides. */
const ROUTER_ADVERTISEMENT = 9
/** The priority of a route that names none. */
const DEFAULT_PRIORITY: Readonly<Record<IpFamily, number>> = { ipv4: 0, ipv6: 1024 }

interface Update {
  readonly network: Network
  readonly log: Logger
  /** The state before the first change. */
  readonly addresses: readonly LinkAddress[]
  readonly routes: readonly Route[]
}

/**
 * Sets each family's address and default route, and removes those of earlier metadata. Settings from other sources
 * stay, because a call of the API has precedence. A family that the kernel refuses stays unchanged, with a warning.
 * Returns whether anything changed. The link must be up.
 */
export function applyLinks(network: Network, wanted: readonly PlacedLink[], log: Logger): boolean {
  const update = { network, log, addresses: network.addresses(), routes: network.routes() }
  let changed = false
  const refused = new Set<IpFamily>()
  for (const link of wanted) {
    try {
      changed = applyLink(update, link) || changed
    } catch (error) {
      refused.add(link.family)
      log.warn('VM metadata refused by the kernel', { family: link.family, error: messageOf(error) })
    }
  }
  return removeStale(update, wanted, refused) || changed
}

function applyLink(update: Update, link: PlacedLink): boolean {
  const { network, addresses } = update
  const address = addressOf(link)
  const isNew = !addresses.some((other) => isSameAddress(other, address)) && addIfNew(network, address)
  try {
    return routeByPeer(update, link) || isNew
  } catch (error) {
    if (isNew) network.removeAddress(address)
    throw error
  }
}

/** Returns false when the link has the address from another source. */
function addIfNew(network: Network, address: LinkAddress): boolean {
  try {
    network.addAddress(address)
    return true
  } catch (error) {
    if (errnoOf(error) === 'EEXIST') return false
    throw error
  }
}

function routeByPeer({ network, log, routes }: Update, link: PlacedLink): boolean {
  const route = routeOf(link)
  const rivals = routes.filter((other) => isRival(other, route))
  if (rivals.some((other) => isSameGateway(other, route))) return false
  const [rival] = rivals
  if (rival === undefined) {
    network.addRoute(route)
    return true
  }
  if (rival.protocol !== METADATA_PROTOCOL && rival.protocol !== ROUTER_ADVERTISEMENT) {
    log.info('existing default route kept', { family: link.family, gateway: rival.gateway })
    return false
  }
  network.replaceRoute(route)
  return true
}

/** Removes the routes of earlier metadata, and the addresses whose peers they led to. */
function removeStale(update: Update, wanted: readonly PlacedLink[], refused: ReadonlySet<IpFamily>): boolean {
  const earlier = update.routes.filter(
    ({ protocol, family }) => protocol === METADATA_PROTOCOL && !refused.has(family),
  )
  const wantedRoutes = wanted.map(routeOf)
  const wantedAddresses = wanted.map(addressOf)
  const replaced = update.network.routes()
  const routes = earlier
    .filter((route) => !wantedRoutes.some((other) => isSameGateway(other, route)))
    .filter((route) =>
      replaced.some((other) => other.protocol === METADATA_PROTOCOL && isSameGateway(other, route)),
    )
  const addresses = update.addresses
    .filter(({ linkIndex, peer }) =>
      earlier.some((route) => route.linkIndex === linkIndex && route.gateway === peer),
    )
    .filter((address) => !wantedAddresses.some((other) => isSameAddress(other, address)))
  for (const route of routes) update.network.removeRoute(route)
  for (const address of addresses) update.network.removeAddress(address)
  return routes.length + addresses.length > 0
}

/** Whether the kernel would keep only one of the two routes. */
function isRival(one: Route, other: Route): boolean {
  const priorityOf = ({ priority, family }: Route) => priority ?? DEFAULT_PRIORITY[family]
  const isDefault = one.destination.prefixLength === 0 && one.source === undefined
  return isDefault && one.family === other.family && priorityOf(one) === priorityOf(other)
}
