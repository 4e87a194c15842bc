import { AgentError } from '../../base/errors.ts'
import type {
  AcknowledgeExitsRequest,
  AcknowledgeExitsResponse,
  GetEventsRequest,
  GetEventsResponse,
  ListExitsRequest,
  ListExitsResponse,
} from '../../gen/microvm/agent/v1/introspection.ts'
import type { Clock } from '../../os/clock.ts'
import type { EventLog } from '../../state/event-log.ts'
import { numberUpTo } from './request-fields.ts'

const LONGEST_WAIT_MS = 60_000

/** The most events of one answer. */
const MOST_EVENTS = 256

const MOST_WAITING = 64

export class Events {
  readonly #log: EventLog
  readonly #clock: Pick<Clock, 'startTimer'>
  #waiting = 0

  constructor(log: EventLog, clock: Pick<Clock, 'startTimer'>) {
    this.#log = log
    this.#clock = clock
  }

  /** Throws INVALID_ARGUMENT for a future number or too long a wait, RESOURCE_EXHAUSTED when too many calls wait. */
  async get(request: GetEventsRequest, signal: AbortSignal): Promise<GetEventsResponse> {
    const { afterSequence } = request
    const timeoutMs = numberUpTo('timeout_ms', request.timeoutMs, LONGEST_WAIT_MS)
    const limit = numberUpTo('limit', request.limit, MOST_EVENTS) || MOST_EVENTS
    this.#refuseFuture(afterSequence)
    if (afterSequence === this.#log.last && timeoutMs > 0) await this.#wait(timeoutMs, signal)
    return this.#after(afterSequence, limit)
  }

  /** Never ends by itself. Buffers nothing for a slow reader, which gets a gap instead. */
  async *stream(afterSequence: bigint, signal: AbortSignal): AsyncGenerator<GetEventsResponse> {
    this.#refuseFuture(afterSequence)
    for (let last = afterSequence; ; ) {
      const answer = this.#after(last, MOST_EVENTS)
      if (answer.events.length > 0) yield answer
      last = answer.lastSequence
      if (last === this.#log.last) await this.#log.next(signal)
    }
  }

  exits({ afterSequence, containerId }: ListExitsRequest): ListExitsResponse {
    this.#refuseFuture(afterSequence)
    const exits = this.#log
      .exits()
      .filter(
        (exit) => exit.sequence > afterSequence && (containerId === '' || exit.containerId === containerId),
      )
    return { exits, dropped: this.#log.droppedExits }
  }

  acknowledge({ upToSequence }: AcknowledgeExitsRequest): AcknowledgeExitsResponse {
    this.#refuseFuture(upToSequence, 'up_to_sequence')
    return { acknowledged: this.#log.acknowledge(upToSequence) }
  }

  #after(sequence: bigint, limit: number): GetEventsResponse {
    const { events, gap } = this.#log.after(sequence, limit)
    const lastSequence = events.at(-1)?.sequence ?? gap?.lastSequence ?? sequence
    return { events: [...events], lastSequence, gap }
  }

  #refuseFuture(sequence: bigint, field = 'after_sequence'): void {
    const { last } = this.#log
    if (sequence > last) {
      throw new AgentError('INVALID_ARGUMENT', `${field}: ${sequence}, want at most ${last}, the last event`)
    }
  }

  async #wait(timeoutMs: number, signal: AbortSignal): Promise<void> {
    if (this.#waiting >= MOST_WAITING) {
      throw new AgentError('RESOURCE_EXHAUSTED', `events: ${MOST_WAITING} calls wait for them, want no more`)
    }
    const timedOut = new AbortController()
    const stopTimer = this.#clock.startTimer(timeoutMs, () => timedOut.abort())
    this.#waiting += 1
    try {
      await this.#log.next(AbortSignal.any([signal, timedOut.signal]))
    } catch (error) {
      if (!timedOut.signal.aborted) throw error
    } finally {
      this.#waiting -= 1
      stopTimer()
    }
  }
}
