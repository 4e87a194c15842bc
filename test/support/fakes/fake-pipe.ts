/** Bytes on their way from writers to readers: a kernel pipe with its capacity, EOF and EPIPE. */
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

  /** Makes it hold at least so much. */
  grow(capacity: number): void {
    this.#capacity = Math.max(this.#capacity, capacity)
  }

  /** Empty at EOF, undefined when a read would block. */
  read(maxBytes: number): Buffer | undefined {
    if (!this.isReadable) return undefined
    const taken = this.#bytes.subarray(0, maxBytes)
    this.#bytes = this.#bytes.subarray(taken.length)
    this.notify()
    return taken
  }

  /** How many bytes there was room for. Ask `readers` first. */
  write(data: Uint8Array): number {
    const taken = data.subarray(0, this.#capacity - this.#bytes.length)
    this.#bytes = Buffer.concat([this.#bytes, taken])
    this.notify()
    return taken.length
  }

  /** Calls back at the next change of bytes or ends, once. Returns how to take that back. */
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
