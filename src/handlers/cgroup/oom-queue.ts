import { Changes } from '../../base/changes.ts'
import { AgentError, messageOf } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import type { LastEvent } from '../../gen/state/oom.ts'
import type { Call } from '../../state/request.ts'
import { KINDS, type StateStore } from '../../state/state-store.ts'

/** The name of the state. */
const NAME = 'oom'

/** How many events wait for a caller. */
const CAPACITY = 100

/**
 * A queue of containers that ran out of memory: each event goes to one caller (behaviour spec, section C.33). Adding never
 * waits.
 */
export class OomQueue {
  readonly #log: Logger
  readonly #state: StateStore
  readonly #events: string[] = []
  /** Events in answers whose delivery is not known, by the number of the request. */
  readonly #taken = new Map<bigint, string>()
  readonly #changes = new Changes()
  /** The event that was added last, with the container's kills until then: its record may not have them. */
  #last: LastEvent | undefined
  #isClosed = false

  constructor(log: Logger, state: StateStore) {
    this.#log = log
    this.#state = state
  }

  /**
   * Takes over the events of an agent before this one. `whenSettled` calls back with what has become of an answer, once
   * that is known; never for a request that will be sent again. Throws UnreadableState.
   */
  restore(whenSettled: (request: bigint, act: (outcome: 'written' | 'dropped') => void) => void): void {
    const saved = this.#state.read(KINDS.oom, NAME)
    if (saved === undefined) return
    this.#events.push(...saved.waiting)
    this.#last = saved.last
    for (const { request, containerId } of saved.taken) this.#taken.set(request, containerId)
    for (const { request, containerId } of saved.taken.toReversed()) {
      whenSettled(request, (outcome) => this.settle(request, containerId, outcome === 'written'))
    }
  }

  /**
   * Adds an event of a container, which has had `kills` until now. A full queue drops the new one, with a line in the log.
   */
  add(containerId: string, kills: bigint): void {
    this.#last = { containerId, kills }
    if (this.#isClosed) return
    if (this.#events.length < CAPACITY) {
      this.#events.push(containerId)
      this.#save()
      this.#changes.announce()
    } else this.#log.warn('out-of-memory event dropped: the queue is full', { containerId })
  }

  /** How many kills of a container have become events, when its record has `recorded`. */
  killsOf(containerId: string, recorded: bigint): bigint {
    const kills = this.#last?.containerId === containerId ? this.#last.kills : 0n
    return kills > recorded ? kills : recorded
  }

  /** What has become of the answer that the event was taken for: one that was not delivered goes back to the front. */
  settle(number: bigint, containerId: string, written: boolean): void {
    this.#taken.delete(number)
    if (!written && !this.#isClosed) this.#events.unshift(containerId)
    this.#save()
    this.#changes.announce()
  }

  /**
   * The next event; for a request that has taken one in an agent before, the same. An aborted caller consumes no event.
   * Throws INTERNAL without text once the queue is closed, or what the call is aborted with.
   */
  async take({ signal, number }: Call): Promise<string> {
    for (;;) {
      signal.throwIfAborted()
      const again = this.#taken.get(number)
      if (again !== undefined) return again
      if (this.#isClosed) throw new AgentError('INTERNAL', '', { fault: 'none' })
      const event = this.#events.shift()
      if (event !== undefined) {
        if (number !== 0n) this.#taken.set(number, event)
        this.#save()
        return event
      }
      await this.#changes.next(signal)
    }
  }

  /** Opens the queue for a new sandbox. */
  open(): void {
    this.#isClosed = false
  }

  /** Rejects all waiting calls, and drops the events. */
  close(): void {
    this.#isClosed = true
    this.#events.length = 0
    this.#last = undefined
    this.#taken.clear()
    this.#changes.announce()
    this.#state.remove(NAME)
  }

  /** An event is delivered also when that cannot be recorded; the next agent may then lose or repeat it. */
  #save(): void {
    const taken = [...this.#taken].map(([request, containerId]) => ({ request, containerId }))
    try {
      this.#state.write(KINDS.oom, NAME, { waiting: [...this.#events], taken, last: this.#last })
    } catch (error) {
      this.#log.warn('out-of-memory events not saved', { error: messageOf(error) })
    }
  }
}
