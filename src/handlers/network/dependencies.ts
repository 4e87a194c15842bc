import type { Logger } from '../../base/log.ts'
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
}
