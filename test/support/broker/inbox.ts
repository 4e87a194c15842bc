import type { Socket } from 'node:net'
import { withTimeout } from '../../../src/base/abort.ts'
import { AgentError } from '../../../src/base/errors.ts'
import { startTimer } from '../../../src/os/clock.ts'

/** Shorter than the limit of a test, so that a hung test says what it waited for. */
const LIMIT_MS = 40_000

/** Returns the result of `promise`; throws an error with `what` after 40 s. */
function awaited<T>(what: string, promise: Promise<T>): Promise<T> {
  const late = () => new AgentError('DEADLINE_EXCEEDED', `${what}: nothing within ${LIMIT_MS / 1000} s`)
  return withTimeout({ startTimer }, LIMIT_MS, promise, late)
}

/** Resolves when the kernel has taken all bytes, or the socket is closed. */
export function sent(what: string, socket: Socket, bytes: Buffer): Promise<void> {
  return awaited(what, new Promise((resolve) => socket.write(bytes, () => resolve())))
}

export class Inbox<T> {
  readonly #what: string
  readonly #items: T[] = []
  #changed = Promise.withResolvers<void>()
  #hasEnded = false

  constructor(what: string) {
    this.#what = what
  }

  push(item: T): void {
    this.#items.push(item)
    this.#wake()
  }

  /** Fails the pending and later waits. */
  end(): void {
    this.#hasEnded = true
    this.#wake()
  }

  /** Removes and returns the first item that fits. Throws after the end. */
  async next(fits: (item: T) => boolean = () => true): Promise<T> {
    for (;;) {
      const index = this.#items.findIndex(fits)
      const [item] = index < 0 ? [] : this.#items.splice(index, 1)
      if (item !== undefined) return item
      if (this.#hasEnded) throw new Error(`${this.#what}: they have ended`)
      await awaited(this.#what, this.#changed.promise)
    }
  }

  /** Removes and returns the items until the end, however long they take. */
  async *[Symbol.asyncIterator](): AsyncGenerator<T> {
    for (;;) {
      for (let item = this.#items.shift(); item !== undefined; item = this.#items.shift()) yield item
      if (this.#hasEnded) return
      await this.#changed.promise
    }
  }

  takeAll(): readonly T[] {
    return this.#items.splice(0)
  }

  async rest(): Promise<readonly T[]> {
    while (!this.#hasEnded) await awaited(`the end of ${this.#what}`, this.#changed.promise)
    return this.takeAll()
  }

  #wake(): void {
    const changed = this.#changed
    this.#changed = Promise.withResolvers()
    changed.resolve()
  }
}
