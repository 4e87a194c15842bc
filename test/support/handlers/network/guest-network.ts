import { neverAborted } from '../../../../src/base/abort.ts'
import { type LogFields, type Logger, silentLogger } from '../../../../src/base/log.ts'
import { ARPNeighbor, Interface, Route } from '../../../../src/gen/types.ts'
import { addNeighbors } from '../../../../src/handlers/network/add-neighbors.ts'
import { type NetworkContext, networkQueues } from '../../../../src/handlers/network/context.ts'
import { getIptables, setIptables } from '../../../../src/handlers/network/iptables.ts'
import { listInterfaces, listRoutes } from '../../../../src/handlers/network/list.ts'
import { NetworkRecord } from '../../../../src/handlers/network/network-record.ts'
import { updateInterface } from '../../../../src/handlers/network/update-interface.ts'
import { updateRoutes } from '../../../../src/handlers/network/update-routes.ts'
import type { Network } from '../../../../src/os/network/network.ts'
import { FakeOs } from '../../fakes/fake-os.ts'
import { hotplugOf } from '../device/device-dependencies.ts'

export interface GuestNetwork {
  readonly os: FakeOs
  readonly handlers: ReturnType<typeof boundCalls>
  readonly record: NetworkRecord
  readonly lines: { readonly message: string; readonly fields: LogFields }[]
  state(): object
}

export async function guestNetwork(...links: readonly string[]): Promise<GuestNetwork> {
  const os = new FakeOs()
  for (const name of links) os.network.addLink({ name })
  const lines: GuestNetwork['lines'] = []
  const log = recording(lines)
  const record = new NetworkRecord(log)
  const dependencies = { os, log, record, hotplug: hotplugOf(os), queues: networkQueues() }
  return { os, handlers: boundCalls(dependencies), record, lines, state: () => stateOf(os.network) }
}

function boundCalls(dependencies: NetworkContext) {
  const { network } = dependencies.os
  return {
    updateInterface: (request: Interface, signal: AbortSignal) =>
      updateInterface(dependencies, request, signal),
    updateRoutes: (routes: readonly Route[]) => updateRoutes(dependencies, routes, neverAborted),
    listInterfaces: () => listInterfaces(network),
    listRoutes: () => listRoutes(network),
    addNeighbors: (neighbors: readonly ARPNeighbor[]) => addNeighbors(dependencies, neighbors, neverAborted),
    getIptables: (isIpv6: boolean, signal: AbortSignal) => getIptables(dependencies, isIpv6, signal),
    setIptables: (isIpv6: boolean, rules: Uint8Array, signal: AbortSignal) =>
      setIptables(dependencies, isIpv6, rules, signal),
  }
}

function stateOf(network: Network) {
  const sorted = (entries: readonly object[]) => entries.map((entry) => JSON.stringify(entry)).toSorted()
  return {
    links: sorted(network.links()),
    addresses: sorted(network.addresses()),
    routes: sorted(network.routes()),
    neighbors: sorted(network.neighbors()),
  }
}

export function anInterface(fields: Parameters<typeof Interface.fromPartial>[0] = {}): Interface {
  return Interface.fromPartial({ name: 'eth0', mtu: 1500n, ...fields })
}

export function address(text: string) {
  const [address = '', mask = ''] = text.split('/')
  return { address, mask, family: address.includes(':') ? 1 : 0 } as const
}

export function aRoute(fields: Parameters<typeof Route.fromPartial>[0] = {}): Route {
  return Route.fromPartial({ device: 'eth0', ...fields })
}

export function aNeighbor(text: string, fields: Parameters<typeof ARPNeighbor.fromPartial>[0] = {}) {
  const lladdr = '02:00:00:00:00:aa'
  return ARPNeighbor.fromPartial({ toIPAddress: { address: text }, device: 'eth0', lladdr, ...fields })
}

function recording(lines: GuestNetwork['lines']): Logger {
  const at = (message: string, fields: LogFields = {}) => void lines.push({ message, fields })
  return { ...silentLogger(), info: at, warn: at }
}
