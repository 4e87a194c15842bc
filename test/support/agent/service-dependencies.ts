import type { ServiceDependencies } from '../../../src/agent/service/services.ts'
import { silentLogger } from '../../../src/base/log.ts'
import { networkQueues } from '../../../src/handlers/network/dependencies.ts'
import { NetworkRecord } from '../../../src/handlers/network/network-record.ts'
import { type Machine, machine } from '../handlers/machine.ts'
import { hotplugOf, ROOT } from '../handlers/storage-builder.ts'

/** The dependencies of an agent's RPCs, on an in-memory machine. */
export async function serviceDependencies(): Promise<ServiceDependencies & Pick<Machine, 'os'>> {
  const { os, context } = await machine()
  const log = silentLogger()
  const hotplug = hotplugOf(os)
  return {
    os,
    sandbox: context,
    storage: { os, log, allowedRoots: [ROOT] },
    network: { os, log, hotplug, record: new NetworkRecord(log), queues: networkQueues() },
    guest: {
      ...{ os, log, hotplug, runtime: context.config.runtime, initMode: true, version: '1.2.3' },
      ...{ storageHandlers: [], deviceHandlers: [] },
    },
  }
}
