import { neverAborted } from '../../base/abort.ts'
import { SerialQueue } from '../../base/serial-queue.ts'
import type { ARPNeighbor, Interface, Route } from '../../gen/types.ts'
import { addNeighbors } from './add-neighbors.ts'
import type { NetworkDependencies } from './dependencies.ts'
import { getIptables, setIptables } from './iptables.ts'
import { listInterfaces, listRoutes } from './list.ts'
import { updateInterface } from './update-interface.ts'
import { updateRoutes } from './update-routes.ts'

/** The calls about the guest's network (spec G). */
export interface NetworkHandlers {
  updateInterface(request: Interface, signal: AbortSignal): Promise<Interface>
  updateRoutes(routes: readonly Route[]): Promise<Route[]>
  listInterfaces(): Interface[]
  listRoutes(): Route[]
  addNeighbors(neighbors: readonly ARPNeighbor[]): Promise<void>
  getIptables(isIpv6: boolean, signal: AbortSignal): Promise<Uint8Array>
  setIptables(isIpv6: boolean, rules: Uint8Array, signal: AbortSignal): Promise<Uint8Array>
}

/** Builds the calls; each says in its own file what it throws. */
export function createNetworkHandlers(dependencies: NetworkDependencies): NetworkHandlers {
  const { network } = dependencies.os
  const turns = {
    routes: new SerialQueue(),
    neighbors: new SerialQueue(),
    filterV4: new SerialQueue(),
    filterV6: new SerialQueue(),
  }
  return {
    updateInterface: (request, signal) => updateInterface(dependencies, request, signal),
    updateRoutes: (routes) => turns.routes.run(() => updateRoutes(dependencies, routes), neverAborted),
    listInterfaces: () => listInterfaces(network),
    listRoutes: () => listRoutes(network),
    addNeighbors: (neighbors) =>
      turns.neighbors.run(() => addNeighbors(dependencies, neighbors), neverAborted),
    getIptables: (isIpv6, signal) => getIptables(dependencies, isIpv6, signal),
    setIptables: (isIpv6, rules, signal) => {
      const turn = isIpv6 ? turns.filterV6 : turns.filterV4
      return turn.run(() => setIptables(dependencies, isIpv6, rules, signal), signal)
    },
  }
}
