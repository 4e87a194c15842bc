import type { AppliedSetting } from '../../handlers/network/network-record.ts'
import type { EventLog } from '../../state/event-log.ts'

/** A host may set thousands of routes at once. */
const MOST_SETTINGS = 32

export function tellNetwork(events: Pick<EventLog, 'add'>): (settings: readonly AppliedSetting[]) => void {
  return (settings) => {
    const omitted = Math.max(0, settings.length - MOST_SETTINGS)
    events.add({ networkChanged: { settings: settings.slice(0, MOST_SETTINGS), omitted } })
  }
}
