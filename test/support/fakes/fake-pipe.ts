/** A kernel pipe with its capacity, EOF and EPIPE. */
export class FakePipe {
  readers = 0
  writers = 0
  #capacity: number
  #bytes = Buffer.alloc(0)
  readonly #changed = new Set<() => void>()

  constructor(capacity: number) {
    this.#capacity = capacity
  }

  get isReadable(): boolean {
    return this.#bytes.length > 0 || this.writers === 0
  }

  get isWritable(): boolean {
    return this.#bytes.length < this.#capacity || this.readers === 0
  }

  /** Enlarges the capacity to at least this much. */
  grow(capacity: number): void {
    this.#capacity = Math.max(this.#capacity, capacity)
  }

  /** Reads; empty at EOF, undefined when a read would block. */
  read(maxBytes: number): Buffer | undefined {
    if (!this.isReadable) return undefined
    const taken = this.#bytes.subarray(0, maxBytes)
    this.#bytes = this.#bytes.subarray(taken.length)
    this.notify()
    return taken
  }

  /** Writes as much as there is room for and returns the number of bytes. Check `readers` first. */
  write(data: Uint8Array): number {
    const taken = data.subarray(0, this.#capacity - this.#bytes.length)
    this.#bytes = Buffer.concat([this.#bytes, taken])
    this.notify()
    return taken.length
  }

  /** Calls back once at the next change of bytes or ends, unless the returned function is called first. */
  onChange(callback: () => void): () => void {
    this.#changed.add(callback)
    return () => this.#changed.delete(callback)
  }

  notify(): void {
    const callbacks = [...this.#changed]
    this.#changed.clear()
    for (const callback of callbacks) callback()
  }
}
