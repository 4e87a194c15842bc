import { AgentError } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'

/** How many events are kept for a caller that does not ask. */
const CAPACITY = 100

interface Consumer {
  resolve(containerId: string): void
  reject(reason: unknown): void
}

/** Containers that ran out of memory, each told to one caller (behaviour spec, section C.33). Nothing waits to put in. */
export class OomQueue {
  readonly #log: Logger
  readonly #events: string[] = []
  /** Those who wait, in the order in which they came. */
  readonly #consumers = new Set<Consumer>()
  #isClosed = false

  constructor(log: Logger) {
    this.#log = log
  }

  /** Adds an event. A full queue keeps those it has. */
  add(containerId: string): void {
    if (this.#isClosed || this.#hand(containerId)) return
    if (this.#events.length < CAPACITY) this.#events.push(containerId)
    else this.#log.warn('out-of-memory event dropped: nobody asks for them', { containerId })
  }

  /** Puts back what a caller took but did not get. */
  requeue(containerId: string): void {
    if (!this.#isClosed && !this.#hand(containerId)) this.#events.unshift(containerId)
  }

  /**
   * The next event. Who is aborted takes none with him. Throws INTERNAL without text once the queue is closed, or
   * what `signal` is aborted with.
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

  /** For a new sandbox. */
  open(): void {
    this.#isClosed = false
  }

  /** Ends all who wait, and forgets what nobody took. */
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
  return new AgentError('INTERNAL', '')
}
