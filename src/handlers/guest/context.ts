import type { Logger } from '../../base/log.ts'
import type { Hotplug } from '../../hotplug/wait-for-device.ts'
import type { Os } from '../../os/os.ts'
import type { EventLog } from '../../state/event-log.ts'
import type { DetailsContext } from './details.ts'
import type { MemAgent } from './mem-agent/mem-agent.ts'
import type { MetricsContext } from './metrics/metrics.ts'

export interface GuestContext extends DetailsContext {
  readonly os: Os
  readonly log: Logger
  readonly hotplug: Hotplug
  readonly memAgent: MemAgent
  readonly figures: MetricsContext['figures']
  readonly events: Pick<EventLog, 'add'>
}
