import type { Uevent } from '../os/devices/uevent.ts'
import type { Uevents } from '../os/devices/uevents.ts'

const REMEMBERED = 8

/** `number` keeps the order among all events. */
interface Seen {
  readonly number: number
  readonly event: Uevent | Error
}

/** The uevents during the wait for one device. Matching ones wake the wait; a few are remembered for its error. */
export class SeenEvents {
  readonly #matches: (event: Uevent) => boolean
  readonly #socket: { close(): void }
  /** The last {@link REMEMBERED} of each kind, the newest last. */
  readonly #matching: Seen[] = []
  readonly #others: Seen[] = []
  #matchingCount = 0
  #count = 0
  #latest: Uevent | undefined
  #wake = Promise.withResolvers<void>()

  /** Starts to listen. Throws when the socket cannot be opened. */
  constructor(uevents: Uevents, matches: (event: Uevent) => boolean) {
    this.#matches = matches
    this.#socket = uevents.listen({
      event: (event) => {
        if (this.#matches(event)) {
          this.#latest = event
          this.#onMatch(event)
        } else this.#remember(this.#others, event)
      },
      // The lost events may have matched.
      error: (error) => this.#onMatch(error),
    })
  }

  /** Resolves at the next matching event, or when events may have been lost. */
  next(): Promise<void> {
    this.#wake = Promise.withResolvers()
    return this.#wake.promise
  }

  /** Resolves {@link next} without an event. */
  wake(): void {
    this.#wake.resolve()
  }

  get count(): number {
    return this.#count
  }

  get matching(): number {
    return this.#matchingCount
  }

  get latest(): Uevent | undefined {
    return this.#latest
  }

  /** The last matching events as text, and the last others while there is room, in the order of their arrival. */
  get remembered(): readonly string[] {
    const newestFirst = [...this.#matching.toReversed(), ...this.#others.toReversed()]
    const chosen = newestFirst.slice(0, REMEMBERED)
    return chosen.sort((a, b) => a.number - b.number).map(({ event }) => textOf(event))
  }

  close(): void {
    this.#socket.close()
  }

  #onMatch(event: Uevent | Error): void {
    this.#matchingCount += 1
    this.#remember(this.#matching, event)
    this.#wake.resolve()
  }

  #remember(events: Seen[], event: Uevent | Error): void {
    this.#count += 1
    events.push({ number: this.#count, event })
    if (events.length > REMEMBERED) events.shift()
  }
}

function textOf(event: Uevent | Error): string {
  return event instanceof Error ? event.message : `${event.action}@${event.devicePath}`
}
