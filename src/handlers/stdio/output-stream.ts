import { abortable } from '../../base/abort.ts'
import { AgentError } from '../../base/errors.ts'
import type { Clock } from '../../os/clock.ts'
import type { Fd, Streams } from '../../os/streams/streams.ts'
import { DRAIN_MS, type OutputRead, type ProcessOutput } from './process-streams.ts'

/** What a pipe or pty holds unless it was made larger. */
const DEFAULT_CAPACITY_BYTES = 65_536

/** What a process may make its pipe hold (`/proc/sys/fs/pipe-max-size`). */
const MAX_CAPACITY_BYTES = 1_048_576

const NOTHING: OutputRead = { data: new Uint8Array(0), unread: () => {} }

/** Bytes, and how many were read before them. */
interface Piece {
  readonly offset: number
  readonly data: Uint8Array
}

/**
 * Our end of a process's output (behaviour spec, section C.14). Any number of reads may be pending; each takes what
 * one read(2) gives. After the process's end what is in the pipe is still delivered, then the stream has ended,
 * whoever else holds the pipe. Owns its descriptor until {@link OutputStream.close}.
 */
export class OutputStream implements ProcessOutput {
  readonly #streams: Streams
  readonly #clock: Clock
  readonly #fd: Fd
  #capacityBytes: number
  /** Whether its size is ours to choose, and still the default. */
  #mayGrow: boolean
  /** Aborted when no more output is waited for: what is there is the rest. */
  readonly #final = new AbortController()
  #processEnded = false
  /** How much may still come once it is final. More than its pipe can hold was written by others later. */
  #restBytes: number
  #ended = false
  #closed = false
  #released = false
  #readers = 0
  /** How much was read. */
  #offset = 0
  /** What was read and nobody got, in its order. */
  readonly #returned: Piece[] = []
  /** What the readers wait for who found nothing. */
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
    if (this.#closed) throw new AgentError('INTERNAL', 'cannot get stream reader')
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

  /** To be called when the process has ended: what is still written after half a second is not waited for. */
  processEnded(): void {
    if (this.#processEnded) return
    this.#processEnded = true
    const finish = () => this.#final.abort()
    this.#clock.sleep(DRAIN_MS, this.#final.signal).then(finish, finish)
  }

  /** Ends the stream. Pending reads get what is in the pipe, or its end. */
  close(): void {
    if (this.#closed) return
    this.#closed = true
    this.#final.abort()
    this.#releaseWhenUnused()
  }

  /** Who asks for much at a time wants few calls. */
  #grow(bytes: number): void {
    this.#mayGrow = false
    const wanted = Math.min(bytes, MAX_CAPACITY_BYTES)
    if (this.#streams.growPipe(this.#fd, wanted)) this.#capacityBytes = wanted
  }

  async #next(maxBytes: number, signal: AbortSignal): Promise<OutputRead> {
    for (;;) {
      signal.throwIfAborted()
      const returned = this.#returned.shift()
      if (returned !== undefined) return this.#partOf(returned, maxBytes)
      if (this.#ended) return NOTHING
      const isFinal = this.#final.signal.aborted
      const data = this.#streams.tryRead(this.#fd, maxBytes)
      if (data === undefined && !isFinal) await abortable(this.#untilReady(), signal)
      else if (data === undefined || data.length === 0) this.#ended = true
      else return this.#counted(data, isFinal)
    }
  }

  #counted(data: Uint8Array, isFinal: boolean): OutputRead {
    if (isFinal) this.#restBytes -= data.length
    if (this.#restBytes <= 0) this.#ended = true
    const offset = this.#offset
    this.#offset += data.length
    return this.#given({ offset, data })
  }

  #partOf({ offset, data }: Piece, maxBytes: number): OutputRead {
    if (data.length > maxBytes) this.#unread({ offset: offset + maxBytes, data: data.subarray(maxBytes) })
    return this.#given({ offset, data: data.subarray(0, maxBytes) })
  }

  #given(piece: Piece): OutputRead {
    return { data: piece.data, unread: () => this.#unread(piece) }
  }

  /** Of several answers that nobody got, any may be told first. Once the stream is closed nothing is kept. */
  #unread(piece: Piece): void {
    if (this.#closed) return
    const later = this.#returned.findIndex(({ offset }) => offset > piece.offset)
    this.#returned.splice(later === -1 ? this.#returned.length : later, 0, piece)
    this.#wake()
  }

  /** One wait for all readers. Never rejects: the read that follows tells what was wrong. */
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
