import { messageOf } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import type { Link, LinkAddress, Neighbor, Network, Route } from '../../os/network/network.ts'

/** A link with the state that it loses when it goes down. */
export interface LinkState {
  readonly link: Link
  readonly addresses: readonly LinkAddress[]
  readonly routes: readonly Route[]
  /** The permanent neighbours; empty when no link goes down. */
  readonly neighbors: readonly Neighbor[]
}

const MADE_BY_KERNEL = 2
const NUD_PERMANENT = 0x80

/** `goDown`: the links will go down, and so lose their neighbours. */
export function linkStates(
  network: Network,
  links: readonly Link[],
  { goDown }: { readonly goDown: boolean },
): readonly LinkState[] {
  const addresses = network.addresses()
  const routes = network.routes()
  // Read only when needed: there may be 10,000 neighbours.
  const neighbors = goDown ? network.neighbors().filter(({ state }) => state === NUD_PERMANENT) : []
  return links.map((link) => ({
    link,
    addresses: addresses.filter(({ linkIndex }) => linkIndex === link.index),
    routes: routes.filter(({ linkIndex }) => linkIndex === link.index),
    neighbors: neighbors.filter(({ linkIndex }) => linkIndex === link.index),
  }))
}

/** Runs one change; some implementations only log its error. */
type Attempt = (what: string, action: () => void) => void

/**
 * Restores what the kernel removed from links that went down: routes, neighbours and IPv6 addresses. The kernel itself
 * restores routes to connected networks. Throws the kernel's error unless `attempt` handles it.
 */
export function restoreLost(
  network: Network,
  states: readonly LinkState[],
  attempt: Attempt = (_what, action) => action(),
): void {
  for (const { link, addresses } of states) {
    const present = network.addresses().filter(({ linkIndex }) => linkIndex === link.index)
    for (const address of addresses) {
      // The kernel adds link-local addresses itself.
      if (address.scope !== 0 || present.some((other) => sameAddress(other, address))) continue
      attempt('address', () => network.replaceAddress(address))
    }
  }
  const present = network.routes()
  const lost = states
    .flatMap(({ routes }) => routes)
    .filter((route) => route.protocol !== MADE_BY_KERNEL && !present.some((other) => sameRoute(other, route)))
  // Routes without a gateway come first, because gateways are reached through them.
  for (const route of [...lost.filter(isDirect), ...lost.filter((route) => !isDirect(route))])
    attempt('route', () => network.addRoute(route, 'first'))
  for (const { neighbors } of states)
    for (const neighbor of neighbors) attempt('neighbour', () => network.replaceNeighbor(neighbor))
}

/** Never throws; logs errors. */
export function restoreLinks(network: Network, log: Logger, states: readonly LinkState[]): void {
  const attempt: Attempt = (what, action) => {
    try {
      action()
    } catch (error) {
      log.warn('link not restored', { what, error: messageOf(error) })
    }
  }
  attempt('links', () => resetLinks(network, states, attempt))
  attempt('new addresses', () => removeNewAddresses(network, states, attempt))
  attempt('lost state', () => restoreLost(network, states, attempt))
}

function resetLinks(network: Network, states: readonly LinkState[], attempt: Attempt): void {
  const now = new Map(network.links().map((link) => [link.index, link]))
  const isRenamed = ({ index, name }: Link) => now.get(index)?.name !== name
  // Rename all of them temporarily first, because two links may have swapped names.
  for (const { link } of states.filter((state) => isRenamed(state.link))) {
    attempt('link', () => network.setLink(link.index, { up: false }))
    attempt('link name', () => network.setLink(link.index, { name: temporaryName(link) }))
  }
  for (const { link } of states) {
    const { name, mtu, arp, up, hardwareAddress } = link
    if (now.get(link.index)?.hardwareAddress !== hardwareAddress)
      attempt('hardware address', () => network.setLink(link.index, { hardwareAddress }))
    // Kernels before 6.2 refuse to name a link that is up, even with its own name.
    const named = isRenamed(link) ? { name } : {}
    attempt('link', () => network.setLink(link.index, { ...named, mtu, arp, up }))
  }
}

export function sameAddress(a: LinkAddress, b: LinkAddress): boolean {
  return (
    a.linkIndex === b.linkIndex &&
    a.address === b.address &&
    a.prefixLength === b.prefixLength &&
    a.peer === b.peer
  )
}

/** The temporary name of a link while another link takes its name: unique for each link, at most 15 bytes. */
export function temporaryName({ index }: Link): string {
  return `${index}_temp`
}

function removeNewAddresses(network: Network, states: readonly LinkState[], attempt: Attempt): void {
  for (const { link, addresses } of states) {
    for (const address of network.addresses()) {
      const isNew = address.linkIndex === link.index && !addresses.some((old) => sameAddress(old, address))
      if (isNew && address.scope === 0) attempt('address', () => network.removeAddress(address))
    }
  }
}

function sameRoute(a: Route, b: Route): boolean {
  return (
    a.family === b.family &&
    a.destination.address === b.destination.address &&
    a.destination.prefixLength === b.destination.prefixLength &&
    a.gateway === b.gateway &&
    a.linkIndex === b.linkIndex &&
    a.priority === b.priority
  )
}

function isDirect({ gateway }: Route): boolean {
  return gateway === undefined
}
