import type { Logger } from '../../base/log.ts'
import { SerialQueue } from '../../base/serial-queue.ts'
import type { HotplugDependencies } from '../../hotplug/wait-for-device.ts'
import type { Os } from '../../os/os.ts'
import type { NetworkRecord } from './network-record.ts'

/** What the calls about the guest's network work with. */
export interface NetworkDependencies {
  readonly os: Pick<Os, 'files' | 'network' | 'tools'>
  readonly log: Logger
  readonly record: NetworkRecord
  /** How network cards that are plugged in are waited for. */
  readonly hotplug: HotplugDependencies
  readonly queues: NetworkQueues
}

/** Changes of the same table happen one after the other. */
export interface NetworkQueues {
  readonly routes: SerialQueue
  readonly neighbors: SerialQueue
  readonly iptables: SerialQueue
  readonly ip6tables: SerialQueue
}

export function networkQueues(): NetworkQueues {
  return {
    routes: new SerialQueue(),
    neighbors: new SerialQueue(),
    iptables: new SerialQueue(),
    ip6tables: new SerialQueue(),
  }
}
