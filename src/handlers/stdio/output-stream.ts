import { abortable } from '../../base/abort.ts'
import { AgentError } from '../../base/errors.ts'
import type { Clock } from '../../os/clock.ts'
import type { Fd, Streams } from '../../os/streams/streams.ts'
import { DRAIN_MS, type OutputRead, type ProcessOutput } from './process-streams.ts'

/** The capacity of a pipe or pty, unless it was made larger. */
const DEFAULT_CAPACITY_BYTES = 65_536

/** The capacity that a process may give its pipe (`/proc/sys/fs/pipe-max-size`). */
const MAX_CAPACITY_BYTES = 1_048_576

const NOTHING: OutputRead = { data: new Uint8Array(0), unread: () => {} }

/** A piece of the stream. */
interface Piece {
  /** How many bytes of the stream come before it. */
  readonly offset: number
  readonly data: Uint8Array
}

/**
 * The agent's end of a process's output (behaviour spec, section C.14). Any number of reads may be pending; each takes the
 * bytes of one read(2). After the process has ended, what is in the pipe is still delivered; then the stream ends, even if
 * other processes hold the pipe open. Owns its descriptor until {@link OutputStream.close}.
 */
export class OutputStream implements ProcessOutput {
  readonly #streams: Streams
  readonly #clock: Clock
  readonly #fd: Fd
  #capacityBytes: number
  /** Whether the pipe may be made larger: it has the default size, and none was configured. */
  #mayGrow: boolean
  /** Aborted when reads no longer wait for output: what the pipe holds is the rest. */
  readonly #final = new AbortController()
  #processEnded = false
  /** How many bytes may follow once it is final. Bytes beyond the pipe's capacity were written by other processes later. */
  #restBytes: number
  #ended = false
  #closed = false
  #released = false
  #readers = 0
  /** How many bytes were read. */
  #offset = 0
  /** Pieces whose answers were not delivered, in the order of the stream. */
  readonly #undelivered: Piece[] = []
  /** What reads that found no output wait for. */
  #wait: PromiseWithResolvers<void> | undefined
  #isWatched = false

  /** `capacityBytes` is the pipe's size, 0 for the kernel's default. */
  constructor(os: { readonly streams: Streams; readonly clock: Clock }, fd: Fd, capacityBytes: number) {
    this.#streams = os.streams
    this.#clock = os.clock
    this.#fd = fd
    this.#capacityBytes = Math.max(capacityBytes, DEFAULT_CAPACITY_BYTES)
    this.#mayGrow = capacityBytes === 0
    // The kernel rounds a pipe's size up, to less than its double.
    this.#restBytes = Math.max(2 * this.#capacityBytes, MAX_CAPACITY_BYTES)
  }

  get isClosed(): boolean {
    return this.#closed
  }

  /**
   * At most `maxBytes` of output as soon as there is any; empty at the end of the stream, and for `maxBytes` 0.
   * Throws what `signal` is aborted with.
   */
  async read(maxBytes: number, signal: AbortSignal): Promise<OutputRead> {
    if (this.#closed) throw new AgentError('INTERNAL', 'cannot get stream reader', { fault: 'caller' })
    if (maxBytes === 0) return NOTHING
    this.#readers++
    try {
      if (this.#mayGrow && maxBytes > this.#capacityBytes) this.#grow(maxBytes)
      return await this.#next(Math.min(maxBytes, this.#capacityBytes), signal)
    } finally {
      this.#readers--
      this.#releaseWhenUnused()
    }
  }

  /** To be called when the process has ended. Half a second later reads no longer wait for output. */
  processEnded(): void {
    if (this.#processEnded) return
    this.#processEnded = true
    const finish = () => this.#final.abort()
    this.#clock.sleep(DRAIN_MS, this.#final.signal).then(finish, finish)
  }

  /** Ends the stream. Pending reads get what is in the pipe, or the end of the stream. */
  close(): void {
    if (this.#closed) return
    this.#closed = true
    this.#final.abort()
    this.#releaseWhenUnused()
  }

  /** Makes the pipe larger for a reader of large pieces, so that it needs fewer calls. */
  #grow(bytes: number): void {
    this.#mayGrow = false
    const wanted = Math.min(bytes, MAX_CAPACITY_BYTES)
    if (this.#streams.growPipe(this.#fd, wanted)) this.#capacityBytes = wanted
  }

  async #next(maxBytes: number, signal: AbortSignal): Promise<OutputRead> {
    for (;;) {
      signal.throwIfAborted()
      const piece = this.#undelivered.shift()
      if (piece !== undefined) return this.#partOf(piece, maxBytes)
      if (this.#ended) return NOTHING
      const isFinal = this.#final.signal.aborted
      const data = this.#streams.tryRead(this.#fd, maxBytes)
      if (data === undefined && !isFinal) await abortable(this.#untilReady(), signal)
      else if (data === undefined || data.length === 0) this.#ended = true
      else return this.#count(data, isFinal)
    }
  }

  #count(data: Uint8Array, isFinal: boolean): OutputRead {
    if (isFinal) this.#restBytes -= data.length
    if (this.#restBytes <= 0) this.#ended = true
    const offset = this.#offset
    this.#offset += data.length
    return this.#answer({ offset, data })
  }

  #partOf({ offset, data }: Piece, maxBytes: number): OutputRead {
    if (data.length > maxBytes) this.#unread({ offset: offset + maxBytes, data: data.subarray(maxBytes) })
    return this.#answer({ offset, data: data.subarray(0, maxBytes) })
  }

  #answer(piece: Piece): OutputRead {
    return { data: piece.data, unread: () => this.#unread(piece) }
  }

  /** Puts a piece back in its place: answers that were not delivered are reported in any order. A closed stream keeps none. */
  #unread(piece: Piece): void {
    if (this.#closed) return
    const later = this.#undelivered.findIndex(({ offset }) => offset > piece.offset)
    this.#undelivered.splice(later === -1 ? this.#undelivered.length : later, 0, piece)
    this.#wake()
  }

  /** One wait for all readers. Never rejects: the read that follows reports the error. */
  #untilReady(): Promise<void> {
    this.#wait ??= Promise.withResolvers()
    this.#watch()
    return this.#wait.promise
  }

  #watch(): void {
    if (this.#isWatched) return
    this.#isWatched = true
    const done = () => {
      this.#isWatched = false
      this.#wake()
    }
    this.#streams.readable(this.#fd, this.#final.signal).then(done, done)
  }

  #wake(): void {
    this.#wait?.resolve()
    this.#wait = undefined
  }

  #releaseWhenUnused(): void {
    if (this.#closed && this.#readers === 0 && !this.#released) {
      this.#released = true
      this.#streams.close(this.#fd)
    }
  }
}
