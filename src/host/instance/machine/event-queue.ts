import { messageOf } from '../../../base/errors.ts'
import type { Logger } from '../../../base/log.ts'
import type { QmpEvent } from '../../qemu/qmp/message.ts'
import type { Timeline } from '../record/timeline.ts'

interface EventQueueParts {
  readonly limit: number
  readonly follow: (event: QmpEvent) => Promise<void>
  readonly onFlood: (event: QmpEvent) => void
  readonly log: Logger
}

type Change = () => Promise<void>

/** The handling of QEMU's events, one after the other, and the changes that follow from them. */
export class EventQueue {
  readonly #parts: EventQueueParts
  #last: Promise<void> = Promise.resolve()
  #waiting = 0
  /** By name, those that have not begun. */
  readonly #changes = new Map<string, Change>()

  constructor(parts: EventQueueParts) {
    this.#parts = parts
  }

  /** `timeline` is told at once. */
  push(event: QmpEvent, timeline?: Pick<Timeline, 'event'>): void {
    timeline?.event(event.name)
    const { follow, limit, log, onFlood } = this.#parts
    if (this.#waiting === limit) {
      onFlood(event)
      return
    }
    this.#waiting += 1
    const handled = this.#last.then(() => follow(event))
    this.#last = handled
      .catch((error) => log.warn('event not followed', { event: event.name, error: messageOf(error) }))
      .finally(() => {
        this.#waiting -= 1
      })
  }

  /** Has `run` make the last `change` of those that ask for `name` before it begins. */
  lastOf(name: string, change: Change, run: (last: Change) => Promise<void>): void {
    const isAsked = this.#changes.has(name)
    this.#changes.set(name, change)
    if (isAsked) return
    const made = run(async () => {
      const last = this.#changes.get(name)
      this.#changes.delete(name)
      await last?.()
    })
    // The machine's end, by which it fails, is told elsewhere.
    made.catch((error) => this.#parts.log.debug('event came too late', { error: messageOf(error) }))
  }

  /** Resolves when the events that have come were handled. */
  async followed(): Promise<void> {
    await this.#last
  }
}
