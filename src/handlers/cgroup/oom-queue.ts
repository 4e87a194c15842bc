import { AgentError } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'

/** How many events wait for a caller. */
const CAPACITY = 100

interface Consumer {
  resolve(containerId: string): void
  reject(reason: unknown): void
}

/**
 * A queue of containers that ran out of memory: each event goes to one caller (behaviour spec, section C.33). Adding never
 * waits.
 */
export class OomQueue {
  readonly #log: Logger
  readonly #events: string[] = []
  /** Waiting callers, in the order of their calls. */
  readonly #consumers = new Set<Consumer>()
  #isClosed = false

  constructor(log: Logger) {
    this.#log = log
  }

  /** Adds an event. A full queue drops the new one, with a line in the log. */
  add(containerId: string): void {
    if (this.#isClosed || this.#hand(containerId)) return
    if (this.#events.length < CAPACITY) this.#events.push(containerId)
    else this.#log.warn('out-of-memory event dropped: the queue is full', { containerId })
  }

  /** Puts an event back at the front, whose answer was not delivered. */
  requeue(containerId: string): void {
    if (!this.#isClosed && !this.#hand(containerId)) this.#events.unshift(containerId)
  }

  /**
   * The next event. An aborted caller consumes no event. Throws INTERNAL without text once the queue is closed, or what
   * `signal` is aborted with.
   */
  async take(signal: AbortSignal): Promise<string> {
    signal.throwIfAborted()
    if (this.#isClosed) throw closed()
    const event = this.#events.shift()
    if (event !== undefined) return event
    const consumer = Promise.withResolvers<string>()
    const onAbort = () => {
      this.#consumers.delete(consumer)
      consumer.reject(signal.reason)
    }
    signal.addEventListener('abort', onAbort, { once: true })
    this.#consumers.add(consumer)
    try {
      return await consumer.promise
    } finally {
      signal.removeEventListener('abort', onAbort)
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
    for (const consumer of this.#consumers) consumer.reject(closed())
    this.#consumers.clear()
  }

  #hand(containerId: string): boolean {
    const [first] = this.#consumers
    if (first === undefined) return false
    this.#consumers.delete(first)
    first.resolve(containerId)
    return true
  }
}

function closed(): AgentError {
  return new AgentError('INTERNAL', '', { fault: 'none' })
}
