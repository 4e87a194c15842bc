import type { Logger } from '../../base/log.ts'
import { SerialQueue } from '../../base/serial-queue.ts'
import type { Hotplug } from '../../hotplug/wait-for-device.ts'
import type { Os } from '../../os/os.ts'
import type { NetworkRecord } from './network-record.ts'

export interface NetworkContext {
  readonly os: Pick<Os, 'files' | 'network' | 'tools'>
  readonly log: Logger
  readonly record: NetworkRecord
  readonly hotplug: Hotplug
  readonly queues: NetworkQueues
}

/** One serial queue for each table of the kernel that calls change. */
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
