/** Wakes callers when a state changes. A waiting caller checks the state again after each change. */
export class Changes {
  #waiting = new Set<() => void>()

  /** Resolves at the next change. Throws the reason of `signal` when that fires first. */
  async next(signal: AbortSignal): Promise<void> {
    signal.throwIfAborted()
    const changed = Promise.withResolvers<void>()
    const onAbort = () => {
      this.#waiting.delete(changed.resolve)
      changed.reject(signal.reason)
    }
    signal.addEventListener('abort', onAbort, { once: true })
    this.#waiting.add(changed.resolve)
    try {
      await changed.promise
    } finally {
      signal.removeEventListener('abort', onAbort)
      this.#waiting.delete(changed.resolve)
    }
  }

  /** Wakes the caller that has waited longest. */
  announceOne(): void {
    const [longest] = this.#waiting
    if (longest === undefined) return
    this.#waiting.delete(longest)
    longest()
  }

  announce(): void {
    const waiting = this.#waiting
    this.#waiting = new Set()
    for (const resolve of waiting) resolve()
  }
}
