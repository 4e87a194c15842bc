import type { Uevent } from '../os/devices/uevent.ts'
import type { Uevents } from '../os/devices/uevents.ts'

/** Most events that are remembered. */
const REMEMBERED = 8

/** The last of some events, with their place in the order of all. Crowds wait at once, so that each event comes to many. */
class LastEvents {
  readonly #numbers: number[] = []
  readonly #events: (Uevent | Error)[] = []
  count = 0

  get last(): readonly { readonly number: number; readonly event: Uevent | Error }[] {
    return this.#events.map((event, index) => ({ event, number: this.#numbers[index] ?? 0 }))
  }

  add(number: number, event: Uevent | Error): void {
    const place = this.count % REMEMBERED
    this.#numbers[place] = number
    this.#events[place] = event
    this.count += 1
  }
}

/** The events that come while one device is waited for: they wake its wait, and a few are remembered for its error. */
export class SeenEvents {
  readonly #concerns: (event: Uevent) => boolean
  readonly #socket: { close(): void }
  readonly #concerning = new LastEvents()
  readonly #others = new LastEvents()
  #count = 0
  #latest: Uevent | undefined
  #wake = Promise.withResolvers<void>()

  /** Listens from now on; throws when that cannot be done. */
  constructor(uevents: Uevents, matches: (event: Uevent) => boolean) {
    this.#concerns = matches
    this.#socket = uevents.listen({
      event: (event) => {
        if (this.#concerns(event)) {
          this.#latest = event
          this.#concern(event)
        } else {
          this.#count += 1
          this.#others.add(this.#count, event)
        }
      },
      // Events that were lost may have been of the device.
      error: (error) => this.#concern(error),
    })
  }

  /** Resolves at the next event from now that concerns the device, or when events may have been lost. */
  next(): Promise<void> {
    this.#wake = Promise.withResolvers()
    return this.#wake.promise
  }

  /** Ends the wait for the next event: it is worth looking again. */
  wake(): void {
    this.#wake.resolve()
  }

  /** How many events came, of whatever device. */
  get count(): number {
    return this.#count
  }

  /** How many of them concerned the device. */
  get concerning(): number {
    return this.#concerning.count
  }

  /** The last of those. */
  get latest(): Uevent | undefined {
    return this.#latest
  }

  /** Some of the events as text, in their order: the last, but those that concern the device before any other. */
  get remembered(): readonly string[] {
    const newestFirst = (events: LastEvents) => events.last.toSorted((a, b) => b.number - a.number)
    const chosen = [...newestFirst(this.#concerning), ...newestFirst(this.#others)].slice(0, REMEMBERED)
    return chosen.sort((a, b) => a.number - b.number).map(({ event }) => textOf(event))
  }

  close(): void {
    this.#socket.close()
  }

  #concern(event: Uevent | Error): void {
    this.#count += 1
    this.#concerning.add(this.#count, event)
    this.#wake.resolve()
  }
}

function textOf(event: Uevent | Error): string {
  return event instanceof Error ? event.message : `${event.action}@${event.devicePath}`
}
