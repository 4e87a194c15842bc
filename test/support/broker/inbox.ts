export class Inbox<T> {
  readonly #items: T[] = []
  #changed = Promise.withResolvers<void>()
  #hasEnded = false

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
      if (this.#hasEnded) throw new Error('it has ended')
      await this.#changed.promise
    }
  }

  takeAll(): readonly T[] {
    return this.#items.splice(0)
  }

  async rest(): Promise<readonly T[]> {
    while (!this.#hasEnded) await this.#changed.promise
    return this.takeAll()
  }

  #wake(): void {
    const changed = this.#changed
    this.#changed = Promise.withResolvers()
    changed.resolve()
  }
}
