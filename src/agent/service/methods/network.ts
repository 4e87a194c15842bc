import { AgentError } from '../../../base/errors.ts'
import type { AgentServiceDefinition } from '../../../gen/agent.ts'
import { addNeighbors } from '../../../handlers/network/add-neighbors.ts'
import type { NetworkContext } from '../../../handlers/network/context.ts'
import { getIptables, setIptables } from '../../../handlers/network/iptables.ts'
import { listInterfaces, listRoutes } from '../../../handlers/network/list.ts'
import { updateInterface } from '../../../handlers/network/update-interface.ts'
import { updateRoutes } from '../../../handlers/network/update-routes.ts'
import { cancellable, finishing, NO_DISK, type ServiceMethods } from '../rpc.ts'

export function networkMethods(network: NetworkContext) {
  return {
    // Journaled, because links that swap their names have a temporary name in between.
    updateInterface: finishing(
      'journaled',
      async (request, { signal }) =>
        updateInterface(network, required(request.interface, 'interface'), signal),
      NO_DISK,
    ),
    updateRoutes: finishing(
      'idempotent',
      async (request, { signal }) => ({
        Routes: await updateRoutes(network, required(request.routes, 'routes').Routes, signal),
      }),
      NO_DISK,
    ),
    listInterfaces: cancellable('read', async () => ({ Interfaces: listInterfaces(network.os.network) })),
    listRoutes: cancellable('read', async () => ({ Routes: listRoutes(network.os.network) })),
    addARPNeighbors: finishing(
      'idempotent',
      async (request, { signal }) =>
        addNeighbors(network, required(request.neighbors, 'ARP neighbors').ARPNeighbors, signal),
      NO_DISK,
    ),
    getIPTables: cancellable('read', async ({ isIpv6 }, { signal }) => ({
      data: await getIptables(network, isIpv6, signal),
    })),
    setIPTables: finishing(
      'idempotent',
      async ({ isIpv6, data }, { signal }) => ({
        data: await setIptables(network, isIpv6, data, signal),
      }),
      NO_DISK,
    ),
  } satisfies Partial<ServiceMethods<typeof AgentServiceDefinition>>
}

function required<T>(message: T | undefined, what: string): T {
  if (message === undefined) throw new AgentError('INVALID_ARGUMENT', `empty update ${what} request`)
  return message
}
