import { Changes } from '../../base/changes.ts'
import { AgentError, messageOf } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import type { OutOfMemory } from '../../gen/state/oom.ts'
import type { Call, Taken } from '../../state/request.ts'
import type { RequestJournal } from '../../state/request-journal.ts'
import { KINDS, type StateStore } from '../../state/state-store.ts'

/** The name of the state. */
const NAME = 'oom'

/** The container of an event: its key and the time of its creation, since another container may have had its id. */
export type OomOwner = Pick<OutOfMemory, 'key' | 'createdNs'>

/** How many events wait for a caller. */
const CAPACITY = 100

/** A queue of containers that ran out of memory: each event goes to one caller. Adding never waits. */
export class OomQueue {
  readonly #log: Logger
  readonly #state: StateStore
  readonly #requests: RequestJournal
  #events: OutOfMemory[] = []
  readonly #changes = new Changes()
  #isClosed = false

  constructor(log: Logger, state: StateStore, requests: RequestJournal) {
    this.#log = log
    this.#state = state
    this.#requests = requests
  }

  /** Takes over the events of the previous agent. Throws UnreadableState. */
  restore(): void {
    this.#events.push(...(this.#state.read(KINDS.oom, NAME)?.waiting ?? []))
  }

  /** An event that a request of the previous agent took. Dropped, it goes back to the front. */
  taken(event: OutOfMemory): Taken {
    // That agent may have died before it recorded that the event waits no more.
    this.#events = this.#events.filter((one) => !isSame(one, event))
    return {
      delivered: () => {},
      dropped: () => {
        if (this.#isClosed || this.#events.some((one) => isSame(one, event))) return
        this.#events.unshift(event)
        this.#save()
        this.#changes.announce()
      },
    }
  }

  /**
   * Adds the event of a container, with its kills until now. A full queue drops the new one, with a line in the log.
   */
  add(event: OutOfMemory): void {
    if (this.#isClosed) return
    if (this.#events.length < CAPACITY) {
      this.#events.push(event)
      this.#save()
      this.#changes.announce()
    } else {
      const { containerId } = event
      this.#log.warn('out-of-memory event dropped: the queue is full', { containerId })
    }
  }

  /** How many kills of a container have become events, when its record has `recorded`. */
  killsOf(owner: OomOwner, recorded: bigint): bigint {
    const kills = this.#events.filter((event) => isOf(event, owner)).map((event) => event.kills)
    return [recorded, ...kills].reduce((most, one) => (one > most ? one : most))
  }

  /**
   * The container of the next event; for a request that took one from the previous agent, of the same. An aborted
   * caller consumes no event. Throws INTERNAL without text once the queue is closed, or what the call is aborted with.
   */
  async take(call: Call): Promise<string> {
    for (;;) {
      call.signal.throwIfAborted()
      const again = this.#requests.of(call.number)?.outOfMemory
      if (again === undefined && this.#isClosed) throw new AgentError('INTERNAL', '', { fault: 'none' })
      const event = again ?? this.#events.shift()
      if (event !== undefined) {
        this.#attempt(() => this.#requests.take(call, { outOfMemory: event }, this.taken(event)))
        this.#save()
        return event.containerId
      }
      await this.#changes.next(call.signal)
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
    this.#changes.announce()
    this.#state.remove(NAME)
  }

  #save(): void {
    this.#attempt(() => this.#state.write(KINDS.oom, NAME, { waiting: this.#events }))
  }

  /** An event is delivered also when that cannot be recorded; the next agent may then lose or repeat it. */
  #attempt(record: () => void): void {
    try {
      record()
    } catch (error) {
      this.#log.warn('out-of-memory events not saved', { error: messageOf(error) })
    }
  }
}

function isSame(one: OutOfMemory, other: OutOfMemory): boolean {
  return isOf(one, other) && one.kills === other.kills
}

function isOf(event: OutOfMemory, { key, createdNs }: OomOwner): boolean {
  return event.key === key && event.createdNs === createdNs
}
