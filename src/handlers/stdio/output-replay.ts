import { AgentError } from '../../base/errors.ts'

/** The most bytes that all streams together keep. */
const TOTAL_BYTES = 16 * 1024 * 1024

/** The output that processes have written last, of each stream as much as is configured. */
export class OutputReplay {
  readonly #streamBytes: number
  readonly #totalBytes: number
  #freeBytes: number

  /** 0 keeps nothing. */
  constructor(streamBytes: number, totalBytes = TOTAL_BYTES) {
    this.#streamBytes = streamBytes
    this.#totalBytes = totalBytes
    this.#freeBytes = totalBytes
  }

  /** The tail of a new stream. `close` must follow. */
  open(): OutputTail {
    const hasRoom = this.#streamBytes <= this.#freeBytes
    const bytes = hasRoom ? this.#streamBytes : 0
    this.#freeBytes -= bytes
    return new OutputTail(
      bytes,
      () => this.#missing(),
      () => {
        this.#freeBytes += bytes
      },
    )
  }

  #missing(): AgentError {
    if (this.#streamBytes === 0) {
      return new AgentError('FAILED_PRECONDITION', 'agent.output_replay_bytes: 0, output is not kept')
    }
    const reason = `output: ${this.#totalBytes} bytes of other streams are kept, want no more`
    return new AgentError('RESOURCE_EXHAUSTED', reason)
  }
}

/** Output by its place in the stream. */
export interface KeptOutput {
  readonly offset: number
  readonly data: Uint8Array
  /** How many bytes have passed so far, and how many wait for the reader of a port. */
  readonly totalBytes: number
}

/** The last bytes, and how many there have been so far. */
interface Passed {
  readonly totalBytes: number
  readonly last: Buffer
}

/** The last bytes of one stream: those that were added, or those that its relay has. */
export class OutputTail {
  /** How many bytes it keeps. */
  readonly capacity: number
  readonly #missing: () => AgentError
  readonly #onClose: () => void
  /** The byte at offset n is at n modulo the capacity; made with the first bytes. */
  #ring: Buffer | undefined
  #total = 0
  #relay: (() => Passed) | undefined
  #isClosed = false

  constructor(capacity: number, missing: () => AgentError, onClose: () => void) {
    this.capacity = capacity
    this.#missing = missing
    this.#onClose = onClose
  }

  /** Adds output: `count` bytes, of which `last` are the last ones, as many as are kept. */
  add(count: number, last: Uint8Array): void {
    if (this.capacity === 0 || this.#isClosed) return
    this.#total += count
    this.#ring ??= Buffer.alloc(this.capacity)
    const start = (this.#total - last.length) % this.capacity
    const untilEnd = this.capacity - start
    this.#ring.set(last.subarray(0, untilEnd), start)
    this.#ring.set(last.subarray(untilEnd), 0)
  }

  /** To be called when a relay moves the stream, which keeps its last bytes itself. */
  readFrom(relay: () => Passed): void {
    this.#relay = relay
  }

  /**
   * At most `most` bytes from an offset, or from the first one that is kept; `most` 0: all. Throws FAILED_PRECONDITION or
   * RESOURCE_EXHAUSTED when nothing is kept, INVALID_ARGUMENT for an offset of the future.
   */
  read(offset: number, most: number): KeptOutput {
    if (this.capacity === 0) throw this.#missing()
    const { totalBytes, last } = this.#relay?.() ?? this.#added()
    if (offset > totalBytes) {
      throw new AgentError('INVALID_ARGUMENT', `offset: ${offset}, want at most ${totalBytes}, the end`)
    }
    const firstKept = totalBytes - last.length
    const first = Math.max(offset, firstKept)
    const start = first - firstKept
    return { offset: first, data: last.subarray(start, start + (most || this.capacity)), totalBytes }
  }

  #added(): Passed {
    const totalBytes = this.#total
    const ring = this.#ring ?? Buffer.alloc(0)
    const oldest = totalBytes < this.capacity ? 0 : totalBytes % this.capacity
    const kept = ring.subarray(0, totalBytes)
    return { totalBytes, last: Buffer.concat([kept.subarray(oldest), kept.subarray(0, oldest)]) }
  }

  /** Gives its memory back. */
  close(): void {
    if (this.#isClosed) return
    this.#isClosed = true
    this.#ring = undefined
    this.#relay = undefined
    this.#onClose()
  }
}
