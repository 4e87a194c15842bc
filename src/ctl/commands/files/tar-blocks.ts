export const BLOCK_BYTES = 512

export class TarBlocks {
  readonly #pieces: AsyncIterator<Uint8Array>
  #pending: Buffer = Buffer.alloc(0)
  #isEnded = false

  constructor(archive: AsyncIterable<Uint8Array>) {
    this.#pieces = archive[Symbol.asyncIterator]()
  }

  /** The next header; undefined at a block of zeros, which ends the archive, and when the archive is truncated. */
  async takeHeader(): Promise<Buffer | undefined> {
    const block = await this.take(BLOCK_BYTES)
    if (block?.some((byte) => byte !== 0) !== false) return block
    this.#isEnded = true
    this.#pending = Buffer.alloc(0)
    // tar pads an archive to whole records.
    while (await this.#readMore()) this.#pending = Buffer.alloc(0)
    return undefined
  }

  /** For few bytes; undefined when the archive is truncated. */
  async take(bytes: number): Promise<Buffer | undefined> {
    while (this.#pending.length < bytes) if (!(await this.#readMore())) return undefined
    const taken = this.#pending.subarray(0, bytes)
    this.#pending = this.#pending.subarray(bytes)
    return taken
  }

  /** Whether the archive had its end, and so is complete. */
  get isEnded(): boolean {
    return this.#isEnded
  }

  /** Fewer bytes when the archive is truncated. */
  async *pass(bytes: number): AsyncGenerator<Buffer, void, undefined> {
    for (let rest = bytes; rest > 0; ) {
      if (this.#pending.length === 0 && !(await this.#readMore())) return
      const piece = this.#pending.subarray(0, rest)
      this.#pending = this.#pending.subarray(piece.length)
      rest -= piece.length
      yield piece
    }
  }

  async #readMore(): Promise<boolean> {
    const { done, value } = await this.#pieces.next()
    if (done === true) return false
    const piece = Buffer.from(value.buffer, value.byteOffset, value.length)
    this.#pending = this.#pending.length === 0 ? piece : Buffer.concat([this.#pending, piece])
    return true
  }
}
