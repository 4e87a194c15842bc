import type { Socket } from 'node:net'
import { changed } from './resuming-host.ts'

/** The host's side of an output that does not resume: it checks each byte that comes, and counts those that are lost. */
export class LosingReader {
  readonly #wanted: Buffer
  /** Where the next byte is. */
  total = 0
  lost = 0

  constructor(wanted: Buffer) {
    this.#wanted = wanted
  }

  /** Reads until the connection ends, or the next byte is at `most`. */
  async read(socket: Socket, most = Number.POSITIVE_INFINITY): Promise<void> {
    while (this.total < most) {
      const chunk: Buffer | null = socket.read()
      if (chunk !== null) this.#take(chunk)
      else if (socket.readableEnded || socket.destroyed) return
      else await changed(socket)
    }
  }

  /** The agent has told where the next connection begins. */
  lose(total: number): void {
    if (total < this.total) throw new Error(`${total} bytes were told, and ${this.total} have come`)
    this.lost += total - this.total
    this.total = total
  }

  #take(chunk: Buffer): void {
    const wanted = this.#wanted.subarray(this.total, this.total + chunk.length)
    if (!wanted.equals(chunk)) throw new Error(`other bytes from ${this.total} on`)
    this.total += chunk.length
  }
}

/** The host's side of an input that does not resume: it goes on where the agent has told that the process stands. */
export class LosingWriter {
  readonly #bytes: Buffer
  /** What was written. */
  total = 0
  /** How many bytes were written and lost. */
  lost = 0

  constructor(bytes: Buffer) {
    this.#bytes = bytes
  }

  async writeUntil(socket: Socket, total: number): Promise<void> {
    socket.write(this.#bytes.subarray(this.total, total))
    this.total = Math.max(this.total, total)
  }

  lose(total: number): void {
    if (total > this.total) throw new Error(`${total} bytes were told, and ${this.total} were written`)
    this.lost += this.total - total
    this.total = total
  }
}
