import type { Uevents } from '../../os/devices/uevents.ts'
import type { EventLog } from '../../state/event-log.ts'

/** The subsystems of pluggable devices. Others have an event for each module, queue and part of such a device. */
const SUBSYSTEMS: readonly string[] = ['block', 'net', 'pci', 'cpu', 'memory']

const ACTIONS: readonly string[] = ['add', 'remove', 'online', 'offline', 'change']

export function tellDevices(uevents: Pick<Uevents, 'listen'>, events: Pick<EventLog, 'add'>): void {
  uevents.listen({
    event: ({ action, devicePath: path, subsystem }) => {
      if (!SUBSYSTEMS.includes(subsystem) || !ACTIONS.includes(action)) return
      events.add({ deviceChanged: { action, path: `/sys${path}`, subsystem } })
    },
    // Lost uevents are not reported.
    error: () => {},
  })
}
