import { EventLog } from '../../../src/state/event-log.ts'
import { StateStore } from '../../../src/state/state-store.ts'
import { MemoryStateFiles } from './files/memory-state-files.ts'

export function eventLog(state = new StateStore(new MemoryStateFiles())): EventLog {
  return new EventLog(state, { boottimeNs: () => 0n, unixMs: () => 0 })
}
