import type { Native } from '../native.ts'
import {
  decodeAddress,
  LIST_ADDRESSES,
  newAddressRequest,
  removeAddressRequest,
} from './netlink/address-messages.ts'
import { decodeLink, LIST_LINKS, setLinkRequest } from './netlink/link-messages.ts'
import type { Message } from './netlink/message.ts'
import {
  decodeNeighbor,
  LIST_NEIGHBORS,
  newNeighborRequest,
  removeNeighborRequest,
} from './netlink/neighbor-messages.ts'
import { decodeRoute, LIST_ROUTES, newRouteRequest, removeRouteRequest } from './netlink/route-messages.ts'
import { type Change, intact, type Request, RouteSocket } from './netlink/route-socket.ts'
import type { LinkAddress, LinkChange, Neighbor, Network, Route } from './network.ts'

/** NLM_F_ flags of a request that creates something. */
const REPLACE = 0x100
const EXCLUSIVE = 0x200
const CREATE = 0x400

/** The network namespace is that of this process at the first call. */
export function linuxNetwork(native: Native): Network {
  const socket = new RouteSocket(native)
  const listOf = <T>(what: string, request: Request, decode: (message: Message) => T | undefined) => {
    const messages = socket.list(request, what)
    return intact('list', what, () => messages.map(decode).filter((entry) => entry !== undefined))
  }
  return {
    links: () => listOf('links', LIST_LINKS, decodeLink),
    setLink(index, change) {
      const subject = () => describeChange(index, change)
      socket.change({ request: setLinkRequest(index, change), flags: 0, call: 'set', subject })
    },

    addresses: () => listOf('addresses', LIST_ADDRESSES, decodeAddress),
    addAddress: (address) => socket.change(newAddress(address, CREATE | EXCLUSIVE)),
    replaceAddress: (address) => socket.change(newAddress(address, CREATE | REPLACE)),
    removeAddress(address) {
      const subject = () => describeAddress(address)
      socket.change({ request: removeAddressRequest(address), flags: 0, call: 'remove', subject })
    },

    routes: () => listOf('routes', LIST_ROUTES, decodeRoute),
    addRoute(route, place = 'only') {
      socket.change(newRoute(route, place === 'only' ? CREATE | EXCLUSIVE : CREATE))
    },
    replaceRoute: (route) => socket.change(newRoute(route, CREATE | REPLACE)),
    putRoutes: (wanted) =>
      socket.changeAll(
        wanted.map(({ route, place }) => newRoute(route, place === 'first' ? CREATE : CREATE | REPLACE)),
      ),
    removeRoute(route) {
      const subject = () => describeRoute(route)
      socket.change({ request: removeRouteRequest(route), flags: 0, call: 'remove', subject })
    },

    neighbors: () => listOf('neighbours', LIST_NEIGHBORS, decodeNeighbor),
    replaceNeighbor: (neighbor) => socket.change(newNeighbor(neighbor)),
    replaceNeighbors: (neighbors) => socket.changeAll(neighbors.map(newNeighbor)),
    removeNeighbor(neighbor) {
      const subject = () => describeNeighbor(neighbor)
      socket.change({ request: removeNeighborRequest(neighbor), flags: 0, call: 'remove', subject })
    },
  }
}

function newAddress(address: LinkAddress, flags: number): Change {
  return { request: newAddressRequest(address), flags, call: 'add', subject: () => describeAddress(address) }
}

function newRoute(route: Route, flags: number): Change {
  return { request: newRouteRequest(route), flags, call: 'add', subject: () => describeRoute(route) }
}

function newNeighbor(neighbor: Neighbor): Change {
  const subject = () => describeNeighbor(neighbor)
  return { request: newNeighborRequest(neighbor), flags: CREATE | REPLACE, call: 'add', subject }
}

function describeChange(index: number, change: LinkChange): string {
  const words = Object.entries(change).map(([key, value]) => `${key}=${value}`)
  return `link ${index} ${words.join(' ')}`
}

function describeAddress({ address, peer, prefixLength, linkIndex }: LinkAddress): string {
  return `address ${address}${peer === undefined ? '' : ` peer ${peer}`}/${prefixLength} of link ${linkIndex}`
}

function describeRoute({ destination, gateway, linkIndex }: Route): string {
  const via = gateway === undefined ? '' : ` via ${gateway}`
  return `route ${destination.address}/${destination.prefixLength}${via} on link ${linkIndex}`
}

function describeNeighbor({ address, hardwareAddress, linkIndex }: Neighbor): string {
  return `neighbour ${address} ${hardwareAddress} on link ${linkIndex}`
}
