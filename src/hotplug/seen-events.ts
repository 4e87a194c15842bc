import type { Uevents } from '../os/os.ts'
import type { Uevent } from '../os/uevent.ts'

/** Most events that are remembered. */
const REMEMBERED = 8

/** The events that come while one device is waited for: they wake its wait, and a few are remembered for its error. */
export class SeenEvents {
  readonly #concerns: (event: Uevent) => boolean
  readonly #socket: { close(): void }
  readonly #remembered: { readonly text: string; readonly isConcern: boolean }[] = []
  #count = 0
  #concerning = 0
  #latest: Uevent | undefined
  #wake = Promise.withResolvers<void>()

  /** Listens from now on; throws when that cannot be done. */
  constructor(uevents: Uevents, concerns: (event: Uevent) => boolean) {
    this.#concerns = concerns
    this.#socket = uevents.listen({
      event: (event) => {
        const isConcern = this.#concerns(event)
        if (isConcern) this.#latest = event
        this.#record(`${event.action}@${event.devicePath}`, isConcern)
      },
      // Events that were lost may have been of the device.
      error: (error) => this.#record(error.message, true),
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
    return this.#concerning
  }

  /** The last of those. */
  get latest(): Uevent | undefined {
    return this.#latest
  }

  /** Some of the events as text, in their order: the last, but those that concern the device before any other. */
  get remembered(): readonly string[] {
    return this.#remembered.map(({ text }) => text)
  }

  close(): void {
    this.#socket.close()
  }

  #record(text: string, isConcern: boolean): void {
    this.#count += 1
    if (isConcern) this.#concerning += 1
    if (this.#remembered.push({ text, isConcern }) > REMEMBERED) {
      this.#remembered.splice(
        Math.max(
          0,
          this.#remembered.findIndex((each) => !each.isConcern),
        ),
        1,
      )
    }
    if (isConcern) this.#wake.resolve()
  }
}
