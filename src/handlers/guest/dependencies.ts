import type { HotplugDependencies } from '../../hotplug/wait-for-device.ts'
import type { Os } from '../../os/os.ts'
import type { EventLog } from '../../state/event-log.ts'
import type { DetailsDependencies } from './details.ts'
import type { MemAgent } from './mem-agent/mem-agent.ts'
import type { MetricsDependencies } from './metrics/metrics.ts'

export interface GuestDependencies extends DetailsDependencies {
  readonly os: Os
  readonly hotplug: HotplugDependencies
  readonly memAgent: MemAgent
  readonly figures: MetricsDependencies['figures']
  readonly events: Pick<EventLog, 'add'>
}
