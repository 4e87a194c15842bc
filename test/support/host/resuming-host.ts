import { once } from 'node:events'
import type { Socket } from 'node:net'

const OPENING_BYTES = 16
const TOLD_BYTES = 65_536

export interface Opening {
  readonly name: string
  readonly total: number
}

/** Resolves when there may be more to read, or the end. */
export async function changed(socket: Socket): Promise<void> {
  const over = new AbortController()
  const { signal } = over
  const events = ['readable', 'end', 'close'].map((name) => once(socket, name, { signal }).catch(() => {}))
  await Promise.race(events)
  over.abort()
}

async function readOpening(socket: Socket): Promise<{ readonly opening: Opening; readonly rest: Buffer }> {
  let bytes = Buffer.alloc(0)
  while (bytes.length < OPENING_BYTES) {
    const chunk: Buffer | null = socket.read()
    if (chunk !== null) bytes = Buffer.concat([bytes, chunk])
    else if (socket.readableEnded || socket.destroyed) throw new Error(`it ended after ${bytes.length} bytes`)
    else await changed(socket)
  }
  const opening = { name: bytes.toString('hex', 0, 8), total: Number(bytes.readBigUInt64LE(8)) }
  return { opening, rest: bytes.subarray(OPENING_BYTES) }
}

function totalBytes(total: number): Buffer {
  const bytes = Buffer.alloc(8)
  bytes.writeBigUInt64LE(BigInt(total))
  return bytes
}

/** How a host begins a connection that it dials for a stream that goes on. */
export function openingFor(name: string, total: number): Buffer {
  return Buffer.concat([Buffer.from(name, 'hex'), totalBytes(total)])
}

/** The host's side of an output that resumes, over one connection after the other. */
export class ResumingReader {
  readonly openings: Opening[] = []
  readonly #onNew: (bytes: Buffer) => void
  #parts: Buffer[] = []
  #socket: Socket | undefined
  #at = 0
  total = 0

  constructor(onNew: (bytes: Buffer) => void = () => {}) {
    this.#onNew = onNew
  }

  get bytes(): Buffer {
    this.#parts = [Buffer.concat(this.#parts)]
    return this.#parts[0] ?? Buffer.alloc(0)
  }

  /** Reads until the connection ends, or has brought `most` bytes. Acknowledges what is not read again. */
  async read(socket: Socket, most = Number.POSITIVE_INFINITY): Promise<void> {
    if (socket !== this.#socket) await this.#open(socket)
    let told = this.total
    while (this.total < most) {
      const chunk: Buffer | null = socket.read()
      if (chunk !== null) this.#take(chunk)
      if (this.total - told >= TOLD_BYTES || (chunk === null && this.total !== told)) {
        told = this.total
        socket.write(totalBytes(told))
      }
      if (chunk !== null) continue
      if (socket.readableEnded || socket.destroyed) return
      await changed(socket)
    }
    if (this.total !== told) socket.write(totalBytes(this.total))
  }

  async #open(socket: Socket): Promise<void> {
    const { opening, rest } = await readOpening(socket)
    this.openings.push(opening)
    if (opening.total > this.total) throw new Error(`bytes ${this.total} to ${opening.total} are lost`)
    this.#socket = socket
    this.#at = opening.total
    this.#take(rest)
    socket.write(totalBytes(this.total))
  }

  #take(chunk: Buffer): void {
    const isNew = Math.max(0, this.total - this.#at)
    this.#at += chunk.length
    if (isNew < chunk.length) {
      this.#parts.push(chunk.subarray(isNew))
      this.#onNew(chunk.subarray(isNew))
    }
    this.total = Math.max(this.total, this.#at)
  }
}

/** The host's side of an input that resumes. */
export class ResumingWriter {
  readonly openings: Opening[] = []
  readonly #bytes: Buffer
  #socket: Socket | undefined
  #pending = Buffer.alloc(0)
  #at = 0
  /** What the guest has said last. */
  acknowledged = 0

  constructor(bytes: Buffer) {
    this.#bytes = bytes
  }

  /** Writes what the guest lacks, at most `most` bytes, with 64 KiB out. Ends the connection after the last byte. */
  async write(socket: Socket, most = Number.POSITIVE_INFINITY): Promise<void> {
    if (socket !== this.#socket) await this.#open(socket)
    await this.writeUntil(socket, this.#at + most)
  }

  /** The same, up to a total. */
  async writeUntil(socket: Socket, total: number): Promise<void> {
    if (socket !== this.#socket) await this.#open(socket)
    const until = Math.min(this.#bytes.length, total)
    while (this.#at < until || this.acknowledged < until) {
      const piece = Math.min(until - this.#at, this.acknowledged + TOLD_BYTES - this.#at)
      if (piece > 0) socket.write(this.#bytes.subarray(this.#at, this.#at + piece))
      this.#at += Math.max(0, piece)
      const chunk: Buffer | null = socket.read()
      this.#takeTotals(chunk ?? Buffer.alloc(0))
      if (chunk !== null) continue
      if (socket.readableEnded || socket.destroyed) return
      await changed(socket)
    }
    if (until === this.#bytes.length) socket.end()
  }

  async #open(socket: Socket): Promise<void> {
    const { opening, rest } = await readOpening(socket)
    this.openings.push(opening)
    this.#socket = socket
    this.#at = this.acknowledged = opening.total
    this.#pending = Buffer.alloc(0)
    this.#takeTotals(rest)
  }

  #takeTotals(chunk: Buffer): void {
    this.#pending = Buffer.concat([this.#pending, chunk])
    for (; this.#pending.length >= 8; this.#pending = this.#pending.subarray(8)) {
      this.acknowledged = Number(this.#pending.readBigUInt64LE(0))
      if (this.acknowledged > this.#at)
        throw new Error(`the guest has ${this.acknowledged} of ${this.#at} bytes`)
    }
  }
}
