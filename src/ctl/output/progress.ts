import type { Writable } from 'node:stream'
import { bytesText } from './text.ts'

/** More often a person cannot read it. */
const SHOW_MS = 200

/** Shows how many bytes were moved, on a terminal only, in one line that is erased at the end. */
export class Progress {
  readonly #output: Writable & { readonly isTTY?: boolean }
  readonly #began = performance.now()
  #bytes = 0
  #shownAt = 0

  constructor(output: Writable & { readonly isTTY?: boolean }) {
    this.#output = output
  }

  add(bytes: number): void {
    this.#bytes += bytes
    const now = performance.now()
    if (this.#output.isTTY !== true || now - this.#shownAt < SHOW_MS) return
    this.#shownAt = now
    const rate = (this.#bytes / (now - this.#began)) * 1000
    this.#output.write(`\r\x1b[K${bytesText(this.#bytes)} (${bytesText(rate)}/s)`)
  }

  end(): void {
    if (this.#shownAt > 0) this.#output.write('\r\x1b[K')
  }
}
