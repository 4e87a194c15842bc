import type { Logger } from '../../base/log.ts'
import type { Os } from '../../os/os.ts'
import type { NetworkRecord } from './network-record.ts'

/** What the calls about the guest's network work with. */
export interface NetworkDependencies {
  readonly os: Pick<Os, 'clock' | 'files' | 'network' | 'tools' | 'uevents'>
  readonly log: Logger
  readonly record: NetworkRecord
  /** How long a plugged-in network card is waited for (setting `agent.hotplug_timeout`). */
  readonly hotplugTimeoutMs: number
}
