import type { Settled } from '../../../src/os/supervisor/broker.ts'
import type { RequestState } from '../../../src/os/supervisor/broker-messages.ts'
import type { RequestSource } from '../../../src/state/request-journal.ts'

/** The broker's reports about requests of the previous agent. */
export class FakeRequests implements RequestSource {
  readonly earlierRequests: Map<bigint, RequestState>
  readonly confirmed: bigint[] = []
  #tell: (number: bigint, outcome: Settled) => void = () => {}

  constructor(states: Iterable<readonly [bigint, RequestState]> = []) {
    this.earlierRequests = new Map(states)
  }

  onSettled(tell: (number: bigint, outcome: Settled) => void): void {
    this.#tell = tell
  }

  confirm(number: bigint): void {
    this.confirmed.push(number)
  }

  settle(number: bigint, outcome: Settled): void {
    this.earlierRequests.set(number, outcome)
    this.#tell(number, outcome)
  }
}
