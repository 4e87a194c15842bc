/** What has arrived and was not taken yet, in order. */
export class Inbox<T> {
  readonly #items: T[] = []
  #changed = Promise.withResolvers<void>()
  #hasEnded = false

  push(item: T): void {
    this.#items.push(item)
    this.#wake()
  }

  /** Nothing more arrives: who waits gets an error. */
  end(): void {
    this.#hasEnded = true
    this.#wake()
  }

  /** Takes the first that fits. Throws when none can come any more. */
  async next(fits: (item: T) => boolean = () => true): Promise<T> {
    for (;;) {
      const index = this.#items.findIndex(fits)
      const [item] = index < 0 ? [] : this.#items.splice(index, 1)
      if (item !== undefined) return item
      if (this.#hasEnded) throw new Error('it has ended')
      await this.#changed.promise
    }
  }

  /** Takes all that are there now. */
  takeAll(): readonly T[] {
    return this.#items.splice(0)
  }

  /** Waits for the end and takes what has come until then. */
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
