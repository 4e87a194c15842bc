import type { AgentError } from '../../base/errors.ts'
import type { IpFamily, IpPrefix } from '../../base/ip-address.ts'

/**
 * Links, addresses, routes and neighbours of this process's network namespace, as rtnetlink(7) has them. Every call is
 * one or two messages that the kernel answers at once, so that calls which follow each other without an await are not
 * interrupted by anything else of this process. Failures are `AgentError`s of code INTERNAL whose sentence holds the
 * call, the object and the kernel's own words, and whose `errno` is the kernel's.
 *
 * Addresses are text in the form that `formatIp` gives; hardware addresses are lower-case hexadecimal with colons.
 */
export interface Network {
  /** In the order of their indices. */
  links(): readonly Link[]
  /** One message. ENODEV; EEXIST for a name in use; EBUSY for a name, its own too, of a link that is up, on kernels before 6.2. */
  setLink(index: number, change: LinkChange): void

  addresses(): readonly LinkAddress[]
  /** EEXIST when the link has it. */
  addAddress(address: LinkAddress): void
  /** Adds it, or gives the one that is there these flags. */
  replaceAddress(address: LinkAddress): void
  /** EADDRNOTAVAIL when it is not there. */
  removeAddress(address: LinkAddress): void

  /** The unicast routes of the main table, in the kernel's order of each family, IPv4 first. */
  routes(): readonly Route[]
  /**
   * Adds a route beside others. `first` puts an IPv4 one before those with the same destination and priority. EEXIST
   * when it is there; ENETUNREACH or EHOSTUNREACH when its gateway cannot be reached.
   */
  addRoute(route: Route, place?: 'only' | 'first'): void
  /** Adds a route in place of the one with the same destination and priority, if there is one. */
  replaceRoute(route: Route): void
  /** Adds routes in their order with few system calls, each as {@link RoutePut} says; what each has failed with. */
  putRoutes(wanted: readonly RoutePut[]): Failures
  /** ESRCH when it is not there. */
  removeRoute(route: Route): void

  neighbors(): readonly Neighbor[]
  /** Adds an entry in place of the one for the same address on the same link, if there is one. */
  replaceNeighbor(neighbor: Neighbor): void
  /** {@link replaceNeighbor} for many with few system calls; what each has failed with. */
  replaceNeighbors(neighbors: readonly Neighbor[]): Failures
  /** ENOENT when it is not there. */
  removeNeighbor(neighbor: Neighbor): void
}

/** One entry for each item of a list: its failure, or undefined. A failure does not keep the others from being done. */
export type Failures = readonly (AgentError | undefined)[]

/** A network interface. */
export interface Link {
  readonly index: number
  readonly name: string
  /** Empty when it has none. */
  readonly hardwareAddress: string
  readonly mtu: number
  /** IFF_UP: it was set up, whether or not it has a carrier. */
  readonly up: boolean
  /** False with IFF_NOARP. */
  readonly arp: boolean
  /** IFF_LOOPBACK. */
  readonly loopback: boolean
  /** IPv6 is not disabled on it, nor missing in the kernel. */
  readonly ipv6: boolean
  /** ARPHRD_: 1 is Ethernet, 772 the loopback. */
  readonly type: number
  /** Name of the device it belongs to (`virtio0`); empty when there is none behind it, or the kernel is older than 5.14. */
  readonly parentDevice: string
}

/** What becomes of a link; what is not named stays. */
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
  /** Of the address, or of the peer when there is one. */
  readonly prefixLength: number
  /** The other end of a point-to-point address. */
  readonly peer?: string
  /** IPv4 only. */
  readonly broadcast?: string
  /** RT_SCOPE_: 0 is global, 253 link, 254 host. The kernel finds that of an IPv6 address itself. */
  readonly scope: number
  /** IFA_F_: 2 is NODAD, 0x80 PERMANENT, … */
  readonly flags: number
}

/** A unicast route of the main table. */
export interface Route {
  readonly family: IpFamily
  readonly destination: IpPrefix
  readonly gateway?: string
  /** Missing when it has several next hops. */
  readonly linkIndex?: number
  /** RTA_PREFSRC: the address that connections this way come from. */
  readonly preferredSource?: string
  /** RTA_SRC: for packets from there only (IPv6). */
  readonly source?: IpPrefix
  /** RT_SCOPE_: 0 is universe, 253 link. IPv6 has none. */
  readonly scope: number
  /** RTPROT_: 2 is made by the kernel, 3 by whoever booted, 9 by router advertisements. */
  readonly protocol: number
  /** Lower ones are taken first. Left out: 0 for IPv4, 1024 for IPv6. */
  readonly priority?: number
  readonly mtu?: number
  /** RTNH_F_: 4 is ONLINK. */
  readonly flags: number
}

/** A route and its place among those with the same destination and priority: instead of one, or before them. */
export interface RoutePut {
  readonly route: Route
  readonly place: 'instead' | 'first'
}

/** An entry of a neighbour table. */
export interface Neighbor {
  readonly linkIndex: number
  readonly family: IpFamily
  readonly address: string
  /** Empty when it is not known. */
  readonly hardwareAddress: string
  /** NUD_: 0x80 is PERMANENT. */
  readonly state: number
  /** NTF_. */
  readonly flags: number
}
