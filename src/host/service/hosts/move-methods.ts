import { AgentError } from '../../../base/errors.ts'
import type { HandoverDefinition } from '../../../gen/microvm/instance/v1/handover.ts'
import type { InstanceServiceDefinition } from '../../../gen/microvm/instance/v1/instance.ts'
import type { HypervisorDefinition } from '../../../gen/vm.ts'
import type { Instances } from '../../instance/instances.ts'
import { specKey } from '../../spec/spec-key.ts'
import type { Peer } from '../../tls/credentials.ts'
import type { Tenant } from '../configuration.ts'
import type { ServiceCall, ServiceMethods } from '../rpc.ts'
import { checkOwner } from '../snapshots/snapshot-methods.ts'

type MoveName = 'migrateInstance' | 'listHosts' | 'drainHost'

/** The calls about other hosts. A move is a stream, which its caller can cancel. */
export function moveMethods({
  move,
}: Pick<Instances, 'move'>): Pick<ServiceMethods<typeof InstanceServiceDefinition>, MoveName> {
  return {
    migrateInstance: {
      ...{ role: 'admin', onDaemonDeath: 'read' },
      handleStream: ({ key, ...request }, call) => move.migrate({ ...request, key: specKey(key) }, call),
    },
    listHosts: {
      ...{ role: 'admin', onDaemonDeath: 'read' },
      handle: async () => ({ hosts: [...(await move.hosts())] }),
    },
    drainHost: {
      ...{ role: 'admin', onDaemonDeath: 'idempotent' },
      handle: async ({ draining }) => {
        await move.drain(draining)
        return {}
      },
    },
  }
}

const BY_HOSTS = { role: 'admin', onDaemonDeath: 'read', remote: ['host'] } as const

export function hypervisorMethods({
  move,
}: Pick<Instances, 'move'>): ServiceMethods<typeof HypervisorDefinition> {
  return {
    startMigration: {
      ...BY_HOSTS,
      handle: async (request, call) => move.startMigration(request, hostOf(call)),
    },
  }
}

export function handoverMethods(
  { move }: Pick<Instances, 'move'>,
  tenants: readonly Tenant[],
): ServiceMethods<typeof HandoverDefinition> {
  return {
    move: {
      ...BY_HOSTS,
      handleDuplex: (requests, call) =>
        move.handover(requests, peerOf(call), {
          signal: call.signal,
          checkOwner: (owner, specification) => checkOwner(tenants, owner, specification),
        }),
    },
    fenceVolume: {
      ...BY_HOSTS,
      handle: async (request, call) => move.fenceVolume(request, hostOf(call), call.signal),
    },
  }
}

/** On the sockets of this host nobody is another host. */
function hostOf(call: ServiceCall): string {
  return peerOf(call).id
}

function peerOf({ peer }: ServiceCall): Peer {
  if (peer !== undefined) return peer
  throw new AgentError('PERMISSION_DENIED', 'for other hosts only, want their endpoint')
}
