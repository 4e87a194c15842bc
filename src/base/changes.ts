/** The changes of a state. A caller who waits for another state looks again after each. */
export class Changes {
  /** In the order in which they came. */
  #waiting = new Set<() => void>()

  /** Resolves at the next change. Throws the reason of `signal` when that fires first, and leaves nothing behind. */
  async next(signal: AbortSignal): Promise<void> {
    signal.throwIfAborted()
    const changed = Promise.withResolvers<void>()
    const onAbort = () => changed.reject(signal.reason)
    signal.addEventListener('abort', onAbort, { once: true })
    this.#waiting.add(changed.resolve)
    try {
      await changed.promise
    } finally {
      signal.removeEventListener('abort', onAbort)
      this.#waiting.delete(changed.resolve)
    }
  }

  /** Wakes all callers that wait. */
  announce(): void {
    const waiting = this.#waiting
    this.#waiting = new Set()
    for (const resolve of waiting) resolve()
  }
}
