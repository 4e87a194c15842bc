/** The size of the lines that are kept for a slow or later reader. */
const MOST_BYTES = 256 * 1024

/** Lines that wait for their reader. The oldest make room for new ones, and a marker in their place counts them. */
export class KeptLines {
  readonly #lostLine: (count: number) => string
  readonly #lines: Buffer[] = []
  #bytes = 0
  #lost = 0
  /** Bytes of the first line that the reader has. */
  #written = 0

  /** `lostLine` makes the marker of lost lines. */
  constructor(lostLine: (count: number) => string) {
    this.#lostLine = lostLine
  }

  /** `line` ends with its newline. */
  add(line: string): void {
    const bytes = Buffer.from(line)
    this.#lines.push(bytes)
    this.#bytes += bytes.length
    // A partly written line is kept.
    const first = this.#written > 0 ? 1 : 0
    while (this.#bytes > MOST_BYTES && this.#lines.length > first + 1) {
      const [dropped] = this.#lines.splice(first, 1)
      this.#bytes -= dropped?.length ?? 0
      this.#lost += 1
    }
  }

  /** Calls `write`, which returns the bytes that its reader took, until that is 0. Returns whether no line is left. */
  writeTo(write: (bytes: Buffer) => number): boolean {
    for (let line = this.#next(); line !== undefined; line = this.#next()) {
      const written = write(line.subarray(this.#written))
      if (written === 0) return false
      this.#written += written
      if (this.#written < line.length) continue
      this.#lines.shift()
      this.#bytes -= line.length
      this.#written = 0
    }
    return true
  }

  /** The next reader gets a partly written line again as a whole. */
  forgetReader(): void {
    this.#written = 0
  }

  /** Puts the marker where lines were lost. */
  #next(): Buffer | undefined {
    if (this.#lost > 0 && this.#written === 0) {
      const marker = Buffer.from(this.#lostLine(this.#lost))
      this.#lost = 0
      this.#lines.unshift(marker)
      this.#bytes += marker.length
    }
    return this.#lines[0]
  }
}
