import { AgentError } from '../../base/errors.ts'
import type { AgentServiceDefinition } from '../../gen/agent.ts'
import { Empty } from '../../gen/google/protobuf/empty.ts'
import type { NetworkHandlers } from '../../handlers/network/network.ts'
import { cancellable, finishing, type ServiceEntries } from './entry.ts'

type NetworkEntries = Pick<
  ServiceEntries<typeof AgentServiceDefinition>,
  | 'updateInterface'
  | 'updateRoutes'
  | 'listInterfaces'
  | 'listRoutes'
  | 'addARPNeighbors'
  | 'getIPTables'
  | 'setIPTables'
>

/** The calls about the guest's network. A request without its one message is INVALID_ARGUMENT (spec C.17). */
export function networkEntries(network: NetworkHandlers): NetworkEntries {
  return {
    updateInterface: finishing(async (request, call) =>
      network.updateInterface(present(request.interface, 'interface'), call.signal),
    ),
    updateRoutes: finishing(async (request) => ({
      Routes: await network.updateRoutes(present(request.routes, 'routes').Routes),
    })),
    listInterfaces: cancellable(async () => ({ Interfaces: network.listInterfaces() })),
    listRoutes: cancellable(async () => ({ Routes: network.listRoutes() })),
    addARPNeighbors: finishing(async (request) => {
      await network.addNeighbors(present(request.neighbors, 'ARP neighbors').ARPNeighbors)
      return Empty.create()
    }),
    getIPTables: cancellable(async ({ isIpv6 }, call) => ({
      data: await network.getIptables(isIpv6, call.signal),
    })),
    setIPTables: finishing(async ({ isIpv6, data }, call) => ({
      data: await network.setIptables(isIpv6, data, call.signal),
    })),
  }
}

function present<T>(message: T | undefined, what: string): T {
  if (message === undefined) throw new AgentError('INVALID_ARGUMENT', `empty update ${what} request`)
  return message
}
