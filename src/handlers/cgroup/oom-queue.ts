import { Changes } from '../../base/changes.ts'
import { AgentError, messageOf } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import type { OutOfMemory } from '../../gen/state/oom.ts'
import type { Call, Taken } from '../../state/request.ts'
import type { RequestJournal } from '../../state/request-journal.ts'
import { KINDS, type StateStore } from '../../state/state-store.ts'

const NAME = 'oom'

/** Key and creation time identify the container, because another one may have had its id. */
export type OomOwner = Pick<OutOfMemory, 'key' | 'createdNs'>

const CAPACITY = 100

/** The present id of a container that may have been renamed; undefined for a container that is gone. */
export interface Ids {
  presentId(container: OomOwner): string | undefined
}

/** A queue of containers that ran out of memory: each event goes to one caller. Adding never waits. */
export class OomQueue {
  readonly #log: Logger
  readonly #state: StateStore
  readonly #requests: RequestJournal
  readonly #names: Ids
  #events: OutOfMemory[] = []
  readonly #changes = new Changes()
  #isClosed = false

  constructor(
    log: Logger,
    parts: { readonly state: StateStore; readonly requests: RequestJournal; readonly names: Ids },
  ) {
    this.#log = log
    this.#state = parts.state
    this.#requests = parts.requests
    this.#names = parts.names
  }

  /** Throws UnreadableState. */
  restore(): void {
    this.#events.push(...(this.#state.read(KINDS.oom, NAME)?.waiting ?? []))
  }

  /** The event of a request of the previous agent; `dropped` puts it back at the front. */
  taken(event: OutOfMemory): Taken {
    // The previous agent may have died before it saved the shorter queue.
    this.#events = this.#events.filter((one) => !isSame(one, event))
    return {
      delivered: () => {},
      dropped: () => {
        if (this.#isClosed || this.#events.some((one) => isSame(one, event))) return
        this.#events.unshift(this.#named(event))
        this.#save()
        this.#changes.announce()
      },
    }
  }

  /** A Rename has given containers other ids. An event keeps the last id of a container that is removed before it is told. */
  renamed(): void {
    this.#events = this.#events.map((event) => this.#named(event))
    if (this.#events.length > 0) this.#save()
  }

  #named(event: OutOfMemory): OutOfMemory {
    return { ...event, containerId: this.#names.presentId(event) ?? event.containerId }
  }

  /** A full queue drops the new event and logs that. */
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

  /** The kills of a container that became events, which its record may not count yet. */
  killsOf(owner: OomOwner, recorded: bigint): bigint {
    const kills = this.#events.filter((event) => isOf(event, owner)).map((event) => event.kills)
    return [recorded, ...kills].reduce((most, one) => (one > most ? one : most))
  }

  /** A request sent again gets the same event; an aborted call takes none. Throws INTERNAL without text once closed. */
  async take(call: Call): Promise<string> {
    for (;;) {
      call.signal.throwIfAborted()
      const again = this.#requests.of(call.number)?.outOfMemory
      if (again === undefined && this.#isClosed) throw new AgentError('INTERNAL', '', { fault: 'none' })
      const event = again ?? this.#events.shift()
      if (event !== undefined) {
        this.#attempt(() => this.#requests.take(call, { outOfMemory: event }, this.taken(event)))
        this.#save()
        return this.#named(event).containerId
      }
      await this.#changes.next(call.signal)
    }
  }

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

  /** Events are delivered even when they cannot be saved; the next agent may then lose or repeat them. */
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
