import type { Native } from './native.ts'
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
import { RouteSocket } from './netlink/route-socket.ts'
import type { LinkAddress, Neighbor, Network, Route } from './network.ts'

/** NLM_F_ of a request that makes something. */
const REPLACE = 0x100
const EXCLUSIVE = 0x200
const CREATE = 0x400

/** The network of the namespace that this process is in when it first asks. */
export function linuxNetwork(native: Native): Network {
  const socket = new RouteSocket(native)
  return {
    links: () => socket.list(LIST_LINKS, 'links').map(decodeLink),
    setLink(index, change) {
      const words = Object.entries(change).map(([key, value]) => `${key}=${value}`)
      socket.change(setLinkRequest(index, change), 0, 'set', `link ${index} ${words.join(' ')}`)
    },

    addresses: () => decoded(socket.list(LIST_ADDRESSES, 'addresses'), decodeAddress),
    addAddress(address) {
      socket.change(newAddressRequest(address), CREATE | EXCLUSIVE, 'add', describeAddress(address))
    },
    replaceAddress(address) {
      socket.change(newAddressRequest(address), CREATE | REPLACE, 'add', describeAddress(address))
    },
    removeAddress(address) {
      socket.change(removeAddressRequest(address), 0, 'remove', describeAddress(address))
    },

    routes: () => decoded(socket.list(LIST_ROUTES, 'routes'), decodeRoute),
    addRoute(route, place = 'only') {
      const flags = place === 'only' ? CREATE | EXCLUSIVE : CREATE
      socket.change(newRouteRequest(route), flags, 'add', describeRoute(route))
    },
    replaceRoute(route) {
      socket.change(newRouteRequest(route), CREATE | REPLACE, 'add', describeRoute(route))
    },
    removeRoute(route) {
      socket.change(removeRouteRequest(route), 0, 'remove', describeRoute(route))
    },

    neighbors: () => decoded(socket.list(LIST_NEIGHBORS, 'neighbours'), decodeNeighbor),
    replaceNeighbor(neighbor) {
      socket.change(newNeighborRequest(neighbor), CREATE | REPLACE, 'add', describeNeighbor(neighbor))
    },
    removeNeighbor(neighbor) {
      socket.change(removeNeighborRequest(neighbor), 0, 'remove', describeNeighbor(neighbor))
    },
  }
}

function decoded<T>(messages: readonly Message[], decode: (message: Message) => T | undefined): readonly T[] {
  return messages.map(decode).filter((entry) => entry !== undefined)
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
