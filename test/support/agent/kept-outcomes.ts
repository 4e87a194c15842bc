import { KeptOutcomes, type OutcomeContext } from '../../../src/agent/service/kept-outcomes.ts'
import { silentLogger } from '../../../src/base/log.ts'
import { LIMITS } from '../../../src/rpc/limits.ts'
import { RequestJournal } from '../../../src/state/request-journal.ts'
import { StateStore } from '../../../src/state/state-store.ts'
import { MemoryStateFiles } from '../fakes/files/memory-state-files.ts'
import { FakeRequests } from '../handlers/fake-requests.ts'

/** Outcomes in memory, with the real limits and a clock that stands. */
export function keptOutcomes(parts: Partial<OutcomeContext> = {}): KeptOutcomes {
  const { log = silentLogger(), state = new StateStore(new MemoryStateFiles()) } = parts
  const requests = new RequestJournal(state, log, new FakeRequests())
  const clock = { nowMs: () => 0, boottimeNs: () => 1n }
  return new KeptOutcomes({ state, log, requests, ...clock, limits: LIMITS.keyed, ...parts })
}
