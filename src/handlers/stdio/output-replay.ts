import { AgentError } from '../../base/errors.ts'

/** The most bytes that all streams together keep. */
const TOTAL_BYTES = 16 * 1024 * 1024

/** Keeps the last output of each stream, as much as is configured. */
export class OutputReplay {
  readonly #streamBytes: number
  readonly #totalBytes: number
  #freeBytes: number

  /** A `streamBytes` of 0 keeps nothing. */
  constructor(streamBytes: number, totalBytes = TOTAL_BYTES) {
    this.#streamBytes = streamBytes
    this.#totalBytes = totalBytes
    this.#freeBytes = totalBytes
  }

  /** The caller closes the tail. */
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
    const reason = `output: not kept, other streams use all ${this.#totalBytes} bytes`
    return new AgentError('RESOURCE_EXHAUSTED', reason)
  }
}

export interface KeptOutput {
  readonly offset: number
  readonly data: Uint8Array
  /** All bytes so far, including those that wait for the reader of a port. */
  readonly totalBytes: number
}

interface Passed {
  readonly totalBytes: number
  readonly last: Buffer
}

/** The last bytes of one stream, from `add` or from its relay. */
export class OutputTail {
  readonly capacity: number
  readonly #missing: () => AgentError
  readonly #onClose: () => void
  /** The byte at offset n is at n modulo the capacity. Allocated with the first bytes. */
  #ring: Buffer | undefined
  #total = 0
  #relay: (() => Passed) | undefined
  #isClosed = false

  constructor(capacity: number, missing: () => AgentError, onClose: () => void) {
    this.capacity = capacity
    this.#missing = missing
    this.#onClose = onClose
  }

  /** `last` has the last of `count` bytes, as many as are kept. */
  add(count: number, last: Uint8Array): void {
    if (this.capacity === 0 || this.#isClosed) return
    this.#total += count
    this.#ring ??= Buffer.alloc(this.capacity)
    const start = (this.#total - last.length) % this.capacity
    const untilEnd = this.capacity - start
    this.#ring.set(last.subarray(0, untilEnd), start)
    this.#ring.set(last.subarray(untilEnd), 0)
  }

  /** For a stream whose relay keeps the last bytes itself. */
  readFrom(relay: () => Passed): void {
    this.#relay = relay
  }

  /** Throws FAILED_PRECONDITION or RESOURCE_EXHAUSTED if none is kept, INVALID_ARGUMENT past the end. `most` 0: all. */
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

  close(): void {
    if (this.#isClosed) return
    this.#isClosed = true
    this.#ring = undefined
    this.#relay = undefined
    this.#onClose()
  }
}
