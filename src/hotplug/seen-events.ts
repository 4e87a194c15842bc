import type { Uevent } from '../os/devices/uevent.ts'
import type { Uevents } from '../os/devices/uevents.ts'

/** The largest number of events that are remembered. */
const REMEMBERED = 8

/** The last events of one kind with their sequence numbers, in a ring: with many concurrent waits `add` must be cheap. */
class LastEvents {
  readonly #numbers: number[] = []
  readonly #events: (Uevent | Error)[] = []
  count = 0

  get last(): readonly { readonly number: number; readonly event: Uevent | Error }[] {
    return this.#events.map((event, index) => ({ event, number: this.#numbers[index] ?? 0 }))
  }

  add(number: number, event: Uevent | Error): void {
    const index = this.count % REMEMBERED
    this.#numbers[index] = number
    this.#events[index] = event
    this.count += 1
  }
}

/** The uevents during the wait for one device. Matching ones wake the wait; a few are remembered for its error. */
export class SeenEvents {
  readonly #matches: (event: Uevent) => boolean
  readonly #socket: { close(): void }
  readonly #matching = new LastEvents()
  readonly #others = new LastEvents()
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
        } else {
          this.#count += 1
          this.#others.add(this.#count, event)
        }
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

  /** The number of events of all devices. */
  get count(): number {
    return this.#count
  }

  /** The number of matching events. */
  get matching(): number {
    return this.#matching.count
  }

  /** The last matching event. */
  get latest(): Uevent | undefined {
    return this.#latest
  }

  /** A few events as text, in their order: the last matching ones first, then the last others while there is room. */
  get remembered(): readonly string[] {
    const newestFirst = (events: LastEvents) => events.last.toSorted((a, b) => b.number - a.number)
    const chosen = [...newestFirst(this.#matching), ...newestFirst(this.#others)].slice(0, REMEMBERED)
    return chosen.sort((a, b) => a.number - b.number).map(({ event }) => textOf(event))
  }

  close(): void {
    this.#socket.close()
  }

  #onMatch(event: Uevent | Error): void {
    this.#count += 1
    this.#matching.add(this.#count, event)
    this.#wake.resolve()
  }
}

function textOf(event: Uevent | Error): string {
  return event instanceof Error ? event.message : `${event.action}@${event.devicePath}`
}
