import type { Logger } from '../../../base/log.ts'
import type { StreamTotal } from '../../../gen/microvm/agent/v1/lifecycle.ts'
import type { EventLog } from '../../../state/event-log.ts'

export const LOST = 'its connection was lost with what it had taken'
export const UNSENT = 'its host claims bytes that were not sent'

/** Adds an event for each stream, and a line, which warns when there is a reason. */
export function tellStreams(
  { events, log }: { readonly events: Pick<EventLog, 'add'>; readonly log: Logger },
  totals: readonly StreamTotal[],
  { action, why }: { readonly action: 'detached' | 'attached' | 'ended'; readonly why: string },
): void {
  for (const { containerId, execId, stream, port, total } of totals) {
    events.add({ streamChanged: { containerId, execId, stream, port, total, action } })
    const fields = { containerId, execId, stream, port, total }
    if (why === '') log.info(`stream ${action}`, fields)
    else log.warn(`stream ${action}: ${why}`, fields)
  }
}
