import type { AgentError } from '../../base/errors.ts'
import type { IpFamily, IpPrefix } from '../../base/ip-address.ts'

/**
 * Links, addresses, routes and neighbours of this process's network namespace (rtnetlink(7)). The kernel answers each call
 * at once, so nothing else of this process runs between calls without an await in between. Failures are `AgentError`s of
 * code INTERNAL with the call, the object and the kernel's own text; `errno` is the kernel's.
 *
 * Addresses are text as `formatIp` prints them; hardware addresses are lower-case hexadecimal with colons.
 */
export interface Network {
  /** All links in the order of their indices. */
  links(): readonly Link[]
  /**
   * Changes a link by one message. ENODEV when it does not exist; EEXIST for a name in use; EBUSY before kernel 6.2 for a
   * name, even its own, while the link is up.
   */
  setLink(index: number, change: LinkChange): void

  addresses(): readonly LinkAddress[]
  /** Adds an address. EEXIST when the link has it. */
  addAddress(address: LinkAddress): void
  /** Adds an address, or sets the flags of the existing one. */
  replaceAddress(address: LinkAddress): void
  /** Removes an address. EADDRNOTAVAIL when the link does not have it. */
  removeAddress(address: LinkAddress): void

  /** The unicast routes of the main table, in the kernel's order of each family, IPv4 first. */
  routes(): readonly Route[]
  /**
   * Adds a route. `first` puts an IPv4 route before those with the same destination and priority. EEXIST when it exists;
   * ENETUNREACH or EHOSTUNREACH when its gateway cannot be reached.
   */
  addRoute(route: Route, place?: 'only' | 'first'): void
  /** Adds a route, or replaces the one with the same destination and priority. */
  replaceRoute(route: Route): void
  /** Adds routes in their order with few system calls, each at its {@link RoutePut.place}. */
  putRoutes(wanted: readonly RoutePut[]): Failures
  /** Removes a route. ESRCH when it does not exist. */
  removeRoute(route: Route): void

  neighbors(): readonly Neighbor[]
  /** Adds an entry, or replaces the one for the same address on the same link. */
  replaceNeighbor(neighbor: Neighbor): void
  /** {@link replaceNeighbor} for many entries with few system calls. */
  replaceNeighbors(neighbors: readonly Neighbor[]): Failures
  /** Removes an entry. ENOENT when it does not exist. */
  removeNeighbor(neighbor: Neighbor): void
}

/** The failure of each item of a list, or undefined. Other items are done in spite of a failure. */
export type Failures = readonly (AgentError | undefined)[]

/** A network interface. */
export interface Link {
  readonly index: number
  readonly name: string
  /** Empty when it has none. */
  readonly hardwareAddress: string
  readonly mtu: number
  /** IFF_UP: set up, with or without a carrier. */
  readonly up: boolean
  /** False with IFF_NOARP. */
  readonly arp: boolean
  /** IFF_LOOPBACK. */
  readonly loopback: boolean
  /** Whether the kernel has IPv6 and it is not disabled on the link. */
  readonly ipv6: boolean
  /** ARPHRD_: 1 is Ethernet, 772 the loopback. */
  readonly type: number
  /** Name of its device (`virtio0`); empty for a link without one, and before kernel 5.14. */
  readonly parentDevice: string
}

/** The changes of a link; missing members stay as they are. */
export interface LinkChange {
  readonly up?: boolean
  readonly arp?: boolean
  readonly name?: string
  readonly mtu?: number
  readonly hardwareAddress?: string
}

/** An address of a link. */
export interface LinkAddress {
  readonly linkIndex: number
  readonly family: IpFamily
  readonly address: string
  /** The prefix of the peer when there is one, else of the address. */
  readonly prefixLength: number
  /** The other end of a point-to-point address. */
  readonly peer?: string
  /** IPv4 only. */
  readonly broadcast?: string
  /** RT_SCOPE_: 0 is global, 253 link, 254 host. The kernel itself determines that of an IPv6 address. */
  readonly scope: number
  /** IFA_F_: 2 is NODAD, 0x80 PERMANENT, … */
  readonly flags: number
}

/** A unicast route of the main table. */
export interface Route {
  readonly family: IpFamily
  readonly destination: IpPrefix
  readonly gateway?: string
  /** Missing when the route has several next hops. */
  readonly linkIndex?: number
  /** RTA_PREFSRC: the source address of connections that use the route. */
  readonly preferredSource?: string
  /** RTA_SRC: the route is only for packets from these addresses (IPv6). */
  readonly source?: IpPrefix
  /** RT_SCOPE_: 0 is universe, 253 link. IPv6 has none. */
  readonly scope: number
  /** RTPROT_: 2 is added by the kernel, 3 at boot, 9 by router advertisements. */
  readonly protocol: number
  /** The lowest is preferred. By default 0 for IPv4, 1024 for IPv6. */
  readonly priority?: number
  readonly mtu?: number
  /** RTNH_F_: 4 is ONLINK. */
  readonly flags: number
}

/** A route and its place among those with the same destination and priority: it replaces one, or comes before them. */
export interface RoutePut {
  readonly route: Route
  readonly place: 'instead' | 'first'
}

/** An entry of a neighbour table. */
export interface Neighbor {
  readonly linkIndex: number
  readonly family: IpFamily
  readonly address: string
  /** Empty when unknown. */
  readonly hardwareAddress: string
  /** NUD_: 0x80 is PERMANENT. */
  readonly state: number
  /** NTF_. */
  readonly flags: number
}
