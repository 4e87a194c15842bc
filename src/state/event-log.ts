import { Changes } from '../base/changes.ts'
import type { Event, EventGap, Exit, Renamed } from '../gen/microvm/agent/v1/introspection.ts'
import { KINDS, type StateStore } from './state-store.ts'

/** What has happened: one member of the message's `event`. */
export type EventBody = Partial<Omit<Event, 'sequence' | 'atMs'>>

/** Events after a sequence number. */
export interface EventsAfter {
  readonly events: readonly Event[]
  /** The numbers before the first of them that are not held. */
  readonly gap: EventGap | undefined
}

/** The name of the state. */
const NAME = 'events'

/** How many numbers each write of the state reserves. */
const RESERVED_AT_ONCE = 4096n

/** How many ids one event tells at most. */
const RENAMED_AT_ONCE = 32

/** The bounds of what is held. */
export interface EventBounds {
  readonly events: number
  readonly exits: number
  /** How old an exit may be, in milliseconds. */
  readonly exitAgeMs: number
}

const EVENT_BOUNDS: EventBounds = { events: 1024, exits: 1024, exitAgeMs: 3_600_000 }

/** What the times of events are made from. */
export interface EventClock {
  /** CLOCK_BOOTTIME in nanoseconds. */
  boottimeNs(): bigint
  /** The time of day in milliseconds since 1970. */
  unixMs(): number
}

/**
 * The last events of the guest, and the last exits until they are acknowledged or an hour old. The next agent has none of
 * them, and begins after the reserved numbers, so a gap may name numbers that no event had.
 */
export class EventLog {
  readonly #state: StateStore
  readonly #clock: EventClock
  readonly #bounds: EventBounds
  /** In the order of their numbers, without a gap. */
  #events: Event[] = []
  /** With the moment of CLOCK_BOOTTIME: when the time of day is set, no exit gets older. */
  #exits: { readonly exit: Exit; readonly addedNs: bigint }[] = []
  #droppedExits = 0n
  #last: bigint
  #reserved: bigint
  readonly #added = new Changes()

  constructor(state: StateStore, clock: EventClock, bounds = EVENT_BOUNDS) {
    this.#state = state
    this.#clock = clock
    this.#bounds = bounds
    this.#last = reservedBefore(state)
    this.#reserved = this.#last
  }

  /** The number of the last event; 0 before the first. */
  get last(): bigint {
    return this.#last
  }

  /** How many exits were dropped for newer ones. */
  get droppedExits(): bigint {
    return this.#droppedExits
  }

  /** Adds an event that happens now. */
  add(body: EventBody): void {
    const event = { ...NO_EVENT, ...body, sequence: this.#next(), atMs: BigInt(this.#clock.unixMs()) }
    this.#events.push(event)
    if (this.#events.length > 2 * this.#bounds.events) this.#events = this.#events.slice(-this.#bounds.events)
    this.#added.announce()
  }

  /** Adds the end of a process. */
  addExit(ended: Omit<Exit, 'sequence'>): void {
    const exit = { ...ended, sequence: this.#last + 1n }
    this.add({ processExited: exit })
    this.#exits.push({ exit, addedNs: this.#clock.boottimeNs() })
    if (this.#exits.length > this.#bounds.exits) {
      this.#exits.shift()
      this.#droppedExits += 1n
    }
  }

  /** Tells other ids, which the exits that are held have from now on. */
  addRenamed({ sandboxId, containers }: Renamed): void {
    const ids = new Map(containers.map(({ oldId, newId }) => [oldId, newId]))
    const named = (exit: Exit) => ({ ...exit, containerId: ids.get(exit.containerId) ?? exit.containerId })
    if (ids.size > 0) this.#exits = this.#exits.map(({ exit, addedNs }) => ({ exit: named(exit), addedNs }))
    // A pod may have any number of containers, and each event is held for long.
    for (let first = 0; first === 0 || first < containers.length; first += RENAMED_AT_ONCE) {
      this.add({ renamed: { sandboxId, containers: containers.slice(first, first + RENAMED_AT_ONCE) } })
    }
  }

  /** The events after a number, at most `limit`. */
  after(sequence: bigint, limit: number): EventsAfter {
    const held = this.#events.slice(-this.#bounds.events)
    const first = held[0]?.sequence ?? this.#last + 1n
    const events = held.slice(Number(sequence < first ? 0n : sequence - first + 1n)).slice(0, limit)
    const isWhole = sequence + 1n >= first
    return {
      events,
      gap: isWhole ? undefined : { firstSequence: sequence + 1n, lastSequence: first - 1n },
    }
  }

  /** Resolves at the next event. Throws what `signal` is aborted with. */
  next(signal: AbortSignal): Promise<void> {
    return this.#added.next(signal)
  }

  /** The exits that are held, the oldest first. */
  exits(): readonly Exit[] {
    const oldest = this.#clock.boottimeNs() - BigInt(this.#bounds.exitAgeMs) * 1_000_000n
    this.#exits = this.#exits.filter(({ addedNs }) => addedNs >= oldest)
    return this.#exits.map(({ exit }) => exit)
  }

  /** Drops the exits up to a number. Returns how many there were. */
  acknowledge(upTo: bigint): number {
    const before = this.exits().length
    this.#exits = this.#exits.filter(({ exit }) => exit.sequence > upTo)
    return before - this.#exits.length
  }

  /** The time of day of a moment of CLOCK_BOOTTIME. */
  unixMsOf(boottimeNs: bigint): bigint {
    return BigInt(this.#clock.unixMs()) - (this.#clock.boottimeNs() - boottimeNs) / 1_000_000n
  }

  #next(): bigint {
    if (this.#last === this.#reserved) {
      this.#reserved += RESERVED_AT_ONCE
      // An event counts even when the state cannot be written; the next agent then uses the same numbers again.
      attempt(() => this.#state.write(KINDS.events, NAME, { reserved: this.#reserved }))
    }
    this.#last += 1n
    return this.#last
  }
}

/** The highest number that the previous agent may have used. When that cannot be read, the numbers begin again. */
function reservedBefore(state: StateStore): bigint {
  return attempt(() => state.read(KINDS.events, NAME))?.reserved ?? 0n
}

function attempt<T>(task: () => T): T | undefined {
  try {
    return task()
  } catch {
    return undefined
  }
}

const NO_EVENT: Omit<Event, 'sequence' | 'atMs'> = {
  agentStarted: undefined,
  processStarted: undefined,
  processExited: undefined,
  outOfMemory: undefined,
  deviceChanged: undefined,
  storageChanged: undefined,
  networkChanged: undefined,
  clockSet: undefined,
  repairStep: undefined,
  ready: undefined,
  clockBehind: undefined,
  renamed: undefined,
  streamChanged: undefined,
}
