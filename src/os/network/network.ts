import type { AgentError } from '../../base/errors.ts'
import type { IpFamily, IpPrefix } from '../../base/ip-address.ts'

/**
 * Links, addresses, routes and neighbours of this process's network namespace (rtnetlink(7)), by synchronous calls.
 * Failures are `AgentError`s of code INTERNAL with the call, the object, the kernel's text and `errno`. Addresses are
 * text as `formatIp` prints them, hardware addresses lower-case hexadecimal with colons.
 */
export interface Network {
  /** In the order of their indices. */
  links(): readonly Link[]
  /** ENODEV without the link; EEXIST for a used name; EBUSY for any name of an up link before kernel 6.2. */
  setLink(index: number, change: LinkChange): void

  addresses(): readonly LinkAddress[]
  /** EEXIST when the link has the address. */
  addAddress(address: LinkAddress): void
  /** Sets the flags of an existing address. */
  replaceAddress(address: LinkAddress): void
  /** EADDRNOTAVAIL when the link does not have the address. */
  removeAddress(address: LinkAddress): void

  /** The unicast routes of the main table, in the kernel's order of each family, IPv4 first. */
  routes(): readonly Route[]
  /**
   * `first` puts an IPv4 route before those with the same destination and priority. EEXIST when it exists; ENETUNREACH
   * or EHOSTUNREACH when its gateway cannot be reached.
   */
  addRoute(route: Route, place?: 'only' | 'first'): void
  /** Replaces the route with the same destination and priority. */
  replaceRoute(route: Route): void
  /** Adds routes in order with few system calls, each at its {@link RoutePut.place}. */
  putRoutes(wanted: readonly RoutePut[]): Failures
  /** ESRCH when the route does not exist. */
  removeRoute(route: Route): void

  neighbors(): readonly Neighbor[]
  /** Replaces the entry for the same address on the same link. */
  replaceNeighbor(neighbor: Neighbor): void
  /** {@link replaceNeighbor} for many entries with few system calls. */
  replaceNeighbors(neighbors: readonly Neighbor[]): Failures
  /** ENOENT when the entry does not exist. */
  removeNeighbor(neighbor: Neighbor): void
}

/** The failure of each item, or undefined. A failure does not stop the other items. */
export type Failures = readonly (AgentError | undefined)[]

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
  readonly loopback: boolean
  /** The kernel has IPv6, and the link has not disabled it. */
  readonly ipv6: boolean
  /** ARPHRD_: 1 is Ethernet, 772 the loopback. */
  readonly type: number
  /** Name of its device (`virtio0`); empty for a link without one, and before kernel 5.14. */
  readonly parentDevice: string
}

/** Missing members stay as they are. */
export interface LinkChange {
  readonly up?: boolean
  readonly arp?: boolean
  readonly name?: string
  readonly mtu?: number
  readonly hardwareAddress?: string
}

export interface LinkAddress {
  readonly linkIndex: number
  readonly family: IpFamily
  readonly address: string
  /** Of the peer if there is one, otherwise of the address. */
  readonly prefixLength: number
  /** The other end of a point-to-point address. */
  readonly peer?: string
  /** IPv4 only. */
  readonly broadcast?: string
  /** RT_SCOPE_: 0 is global, 253 link, 254 host. The kernel sets that of an IPv6 address. */
  readonly scope: number
  /** IFA_F_: 2 is NODAD, 0x80 PERMANENT, … */
  readonly flags: number
}

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

/** The route replaces one with the same destination and priority, or comes before all of them. */
export interface RoutePut {
  readonly route: Route
  readonly place: 'instead' | 'first'
}

export interface Neighbor {
  readonly linkIndex: number
  readonly family: IpFamily
  readonly address: string
  /** Empty when unknown. */
  readonly hardwareAddress: string
  /** NUD_: 0x80 is PERMANENT. */
  readonly state: number
  readonly flags: number
}
