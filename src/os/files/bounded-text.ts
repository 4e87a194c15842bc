/** Collects a program's output up to a number of bytes; the rest is counted, and noted at the end of the text. */
export class BoundedText {
  readonly #maxBytes: number
  readonly #chunks: Buffer[] = []
  #keptBytes = 0
  #droppedBytes = 0

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes
  }

  add(chunk: Buffer): void {
    const kept = chunk.subarray(0, this.#maxBytes - this.#keptBytes)
    if (kept.length > 0) this.#chunks.push(kept)
    this.#keptBytes += kept.length
    this.#droppedBytes += chunk.length - kept.length
  }

  text(encoding: 'utf8' | 'latin1' = 'utf8'): string {
    const kept = Buffer.concat(this.#chunks).toString(encoding)
    return this.#droppedBytes === 0 ? kept : `${kept}\n[${this.#droppedBytes} more bytes dropped]`
  }
}
