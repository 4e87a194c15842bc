import { AgentError } from '../../../src/base/errors.ts'
import {
  ADDRESS_BITS,
  familyOf,
  formatIp,
  type IpPrefix,
  maskHostBits,
  parseIp,
} from '../../../src/base/ip-address.ts'
import { kernelError } from '../../../src/os/errors.ts'
import type {
  Failures,
  Link,
  LinkAddress,
  LinkChange,
  Neighbor,
  Network,
  Route,
  RoutePut,
} from '../../../src/os/network/network.ts'

const LOOPBACK: Link = {
  index: 1,
  name: 'lo',
  hardwareAddress: '00:00:00:00:00:00',
  mtu: 65536,
  up: false,
  arp: true,
  loopback: true,
  ipv6: true,
  type: 772,
  parentDevice: '',
}

const MADE_BY_KERNEL = 2
const LINK_SCOPE = 253
const ONLINK = 4
const PERMANENT_ADDRESS = 0x80

/**
 * Links, addresses, routes and neighbours with the kernel's rules. An address of a link that is up adds a route. A link
 * that goes down loses its routes, neighbours and IPv6 addresses. Gateways must be reachable.
 */
export class FakeNetwork implements Network {
  #links: readonly Link[] = [LOOPBACK]
  #addresses: readonly LinkAddress[] = []
  #routes: readonly Route[] = []
  #neighbors: readonly Neighbor[] = []
  readonly changes: { readonly call: keyof Network; readonly about: string }[] = []
  /** Returns the errno of a failing change; undefined for success. */
  failWith: (call: keyof Network, about: string) => string | undefined = () => undefined

  addLink(link: Partial<Omit<Link, 'index'>> & { readonly name: string }): number {
    const index = 1 + Math.max(...this.#links.map((other) => other.index))
    const hardwareAddress = `02:00:00:00:00:${index.toString(16).padStart(2, '0')}`
    const card = {
      ...LOOPBACK,
      hardwareAddress,
      mtu: 1500,
      loopback: false,
      type: 1,
      parentDevice: 'virtio0',
    }
    this.#links = [...this.#links, { ...card, ...link, index }]
    return index
  }

  links(): readonly Link[] {
    return this.#links
  }

  link(name: string): Link {
    const found = this.#links.find((link) => link.name === name)
    if (found === undefined) throw new Error(`there is no link ${name}`)
    return found
  }

  setLink(index: number, change: LinkChange): void {
    const words = Object.entries(change).map(([key, value]) => `${key}=${value}`)
    const about = `link ${index} ${words.join(' ')}`
    const link = this.#existing('set', about, index)
    this.#note('setLink', about)
    const { name, mtu } = change
    // Kernels before 6.2 check that the link is down before they notice that it already has the name.
    if (name !== undefined && link.up) throw kernelError('set', about, 'EBUSY')
    if (name !== undefined && name !== link.name) {
      if (!/^[^/\s:]+$/.test(name) || Buffer.byteLength(name) > 15) throw kernelError('set', about, 'EINVAL')
      if (this.#links.some((other) => other.name === name)) throw kernelError('set', about, 'EEXIST')
    }
    if (mtu !== undefined && (mtu < 68 || mtu > 65536)) throw kernelError('set', about, 'EINVAL')
    const changed: Link = { ...link, ...change }
    this.#links = this.#links.map((other) => (other === link ? changed : other))
    if (link.up && !changed.up) this.#down(index)
    if (!link.up && changed.up) this.#connectAll(index)
  }

  addresses(): readonly LinkAddress[] {
    return this.#addresses
  }

  addAddress(address: LinkAddress): void {
    if (this.#find(address) !== undefined) throw kernelError('add', about(address), 'EEXIST')
    this.replaceAddress(address)
  }

  replaceAddress(address: LinkAddress): void {
    this.#existing('add', about(address), address.linkIndex)
    checkIp(address.address, address.family, 'add', about(address))
    if (address.prefixLength > ADDRESS_BITS[address.family])
      throw kernelError('add', about(address), 'EINVAL')
    this.#note('replaceAddress', about(address))
    const entry: LinkAddress = { ...address, flags: address.flags | PERMANENT_ADDRESS }
    const old = this.#find(address)
    this.#addresses = [...this.#addresses.filter((other) => other !== old), entry]
    if (old === undefined) this.#connect(entry)
  }

  removeAddress(address: LinkAddress): void {
    const found = this.#find(address)
    if (found === undefined) throw kernelError('remove', about(address), 'EADDRNOTAVAIL')
    this.#note('removeAddress', about(address))
    this.#addresses = this.#addresses.filter((other) => other !== found)
    const made = connected(found)
    this.#routes = this.#routes.filter(
      (route) => !(route.protocol === MADE_BY_KERNEL && sameRoute(route, made)),
    )
  }

  routes(): readonly Route[] {
    return [
      ...this.#routes.filter(({ family }) => family === 'ipv4'),
      ...this.#routes.filter(({ family }) => family === 'ipv6'),
    ]
  }

  addRoute(route: Route, place: 'only' | 'first' = 'only'): void {
    this.#checkRoute(route)
    const taken = (other: Route) => (place === 'only' ? sameKey(other, route) : isSame(other, route))
    if (this.#routes.some(taken)) throw kernelError('add', aboutRoute(route), 'EEXIST')
    this.#note('addRoute', aboutRoute(route))
    this.#routes = [asKept(route), ...this.#routes]
  }

  replaceRoute(route: Route): void {
    this.#checkRoute(route)
    this.#note('replaceRoute', aboutRoute(route))
    const old = this.#routes.find((other) => sameKey(other, route))
    this.#routes =
      old === undefined
        ? [...this.#routes, asKept(route)]
        : this.#routes.map((other) => (other === old ? asKept(route) : other))
  }

  putRoutes(wanted: readonly RoutePut[]): Failures {
    return wanted.map(({ route, place }) =>
      failureOf(() => (place === 'first' ? this.addRoute(route, 'first') : this.replaceRoute(route))),
    )
  }

  removeRoute(route: Route): void {
    const found = this.#routes.find((other) => isSame(other, route))
    if (found === undefined) throw kernelError('remove', aboutRoute(route), 'ESRCH')
    this.#note('removeRoute', aboutRoute(route))
    this.#routes = this.#routes.filter((other) => other !== found)
  }

  neighbors(): readonly Neighbor[] {
    return this.#neighbors
  }

  replaceNeighbor(neighbor: Neighbor): void {
    this.#existing('add', about(neighbor), neighbor.linkIndex)
    checkIp(neighbor.address, neighbor.family, 'add', about(neighbor))
    this.#note('replaceNeighbor', about(neighbor))
    this.#neighbors = [...this.#neighbors.filter((other) => about(other) !== about(neighbor)), neighbor]
  }

  replaceNeighbors(neighbors: readonly Neighbor[]): Failures {
    return neighbors.map((neighbor) => failureOf(() => this.replaceNeighbor(neighbor)))
  }

  removeNeighbor(neighbor: Neighbor): void {
    const rest = this.#neighbors.filter((other) => about(other) !== about(neighbor))
    if (rest.length === this.#neighbors.length) throw kernelError('remove', about(neighbor), 'ENOENT')
    this.#note('removeNeighbor', about(neighbor))
    this.#neighbors = rest
  }

  #note(call: keyof Network, what: string): void {
    const errno = this.failWith(call, what)
    if (errno !== undefined) throw kernelError(call, what, errno)
    this.changes.push({ call, about: what })
  }

  #existing(call: string, what: string, index: number | undefined): Link {
    const link = this.#links.find((other) => other.index === index)
    if (link === undefined) throw kernelError(call, what, 'ENODEV')
    return link
  }

  #find(address: LinkAddress): LinkAddress | undefined {
    return this.#addresses.find((other) => about(other) === about(address))
  }

  #down(index: number): void {
    this.#routes = this.#routes.filter(({ linkIndex }) => linkIndex !== index)
    this.#addresses = this.#addresses.filter(
      ({ linkIndex, family }) => linkIndex !== index || family === 'ipv4',
    )
    this.#neighbors = this.#neighbors.filter(({ linkIndex }) => linkIndex !== index)
  }

  #connectAll(index: number): void {
    for (const address of this.#addresses) if (address.linkIndex === index) this.#connect(address)
  }

  #connect(address: LinkAddress): void {
    const link = this.#existing('add', about(address), address.linkIndex)
    const whole = address.prefixLength === ADDRESS_BITS[address.family] && address.peer === undefined
    if (link.up && !whole) this.#routes = [...this.#routes, connected(address)]
  }

  #checkRoute(route: Route): void {
    const what = aboutRoute(route)
    const { destination, family, gateway, linkIndex } = route
    const link = this.#existing('add', what, linkIndex)
    checkIp(destination.address, family, 'add', what)
    if (network(destination) !== `${destination.address}/${destination.prefixLength}`)
      throw kernelError('add', what, 'EINVAL')
    if (gateway !== undefined && (route.flags & ONLINK) === 0) {
      checkIp(gateway, family, 'add', what)
      const unreachable = family === 'ipv4' ? 'ENETUNREACH' : 'EHOSTUNREACH'
      if (!this.#isReachable(gateway, route)) throw kernelError('add', what, unreachable)
    }
    if (!link.up) throw kernelError('add', what, 'ENETDOWN')
  }

  #isReachable(gateway: string, { family, linkIndex }: Route): boolean {
    return this.#routes.some(
      (other) =>
        other.linkIndex === linkIndex &&
        other.gateway === undefined &&
        other.family === family &&
        network({ address: gateway, prefixLength: other.destination.prefixLength }) ===
          network(other.destination),
    )
  }
}

function failureOf(action: () => void): AgentError | undefined {
  try {
    action()
    return undefined
  } catch (error) {
    if (error instanceof AgentError) return error
    throw error
  }
}

function connected({ family, address, peer, prefixLength, linkIndex }: LinkAddress): Route {
  const [destination = ''] = network({ address: peer ?? address, prefixLength }).split('/')
  return {
    family,
    destination: { address: destination, prefixLength },
    linkIndex,
    ...(family === 'ipv4' ? { preferredSource: address } : { priority: 256 }),
    scope: family === 'ipv4' ? LINK_SCOPE : 0,
    protocol: MADE_BY_KERNEL,
    flags: 0,
  }
}

/** Returns the kernel's form of a route: IPv6 has no scopes and its own default metric. */
function asKept(route: Route): Route {
  return route.family === 'ipv4' ? route : { ...route, scope: 0, priority: route.priority ?? 1024 }
}

function sameKey(a: Route, b: Route): boolean {
  const key = ({ family, destination, priority = family === 'ipv4' ? 0 : 1024 }: Route) =>
    `${family} ${network(destination)} ${priority}`
  return key(a) === key(b)
}

function sameRoute(a: Route, b: Route): boolean {
  return sameKey(a, b) && a.gateway === b.gateway && a.linkIndex === b.linkIndex
}

/** Routes that differ in what made them or how far they reach may exist beside each other. */
function isSame(a: Route, b: Route): boolean {
  const hasSameScope = a.family === 'ipv6' || a.scope === b.scope
  return sameRoute(a, b) && a.protocol === b.protocol && hasSameScope
}

function network({ address, prefixLength }: IpPrefix): string {
  const bytes = parseIp(address)
  if (bytes === undefined) throw new Error(`'${address}' is no address`)
  return `${formatIp(maskHostBits(bytes, prefixLength))}/${prefixLength}`
}

function checkIp(address: string, family: LinkAddress['family'], call: string, what: string): void {
  const bytes = parseIp(address)
  if (bytes === undefined || familyOf(bytes) !== family) throw kernelError(call, what, 'EINVAL')
}

function about({ address, linkIndex, ...rest }: LinkAddress | Neighbor): string {
  const length = 'prefixLength' in rest ? `/${rest.prefixLength}` : ''
  return `${address}${length} of link ${linkIndex}`
}

function aboutRoute({ destination, gateway, linkIndex }: Route): string {
  const via = gateway === undefined ? '' : ` via ${gateway}`
  return `route ${destination.address}/${destination.prefixLength}${via} on link ${linkIndex}`
}
