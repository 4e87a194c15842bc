import { LateAbort } from '../../base/abort.ts'
import { Changes } from '../../base/changes.ts'
import { AgentError } from '../../base/errors.ts'
import type { Clock } from '../../os/clock.ts'
import type { Fd, Streams } from '../../os/streams/streams.ts'
import type { Call, TakenByRequests, Waiting } from '../../state/request.ts'
import { JournalPage } from './journal-page.ts'
import { OutputFile, type OutputTaker } from './output-file.ts'
import type { OutputTail } from './output-replay.ts'
import { DRAIN_MS, NO_OUTPUT, type OutputRead, type ProcessOutput, type StreamOs } from './process-streams.ts'
import type { StoredDescriptors } from './stored-descriptors.ts'

const DEFAULT_CAPACITY_BYTES = 65_536

/** The capacity that a process may give its pipe (`/proc/sys/fs/pipe-max-size`). */
const MAX_CAPACITY_BYTES = 1_048_576

/** How long an empty file keeps its memory for the next output: new memory costs more than a copy. */
const TRIM_MS = 1000

export interface OutputSource {
  /** The agent's end of the pipe, or the master of the terminal. */
  readonly fd: Fd
  /** The pipe's size, 0 for the kernel's default. */
  readonly capacityBytes: number
  readonly name: 'stdout' | 'stderr'
  readonly isTerminal: boolean
  readonly stored: StoredDescriptors
}

/**
 * Any number of reads may be pending; each keeps its bytes in {@link OutputFile} until it is settled. When the process
 * has ended, the rest of the pipe is delivered; then the stream ends, even if other processes hold the pipe open. Owns
 * its descriptors until {@link OutputStream.close}.
 */
export class OutputStream implements ProcessOutput {
  readonly tail: OutputTail | undefined
  readonly #streams: Streams
  readonly #clock: Clock
  readonly #source: OutputSource
  /** Terminal output passes this pipe, because splice(2) needs a pipe at one end. */
  #pipe: Fd | undefined
  #file: OutputFile | undefined
  #opening: Promise<OutputFile> | undefined
  #capacityBytes: number
  /** Whether the pipe may be made larger: no size was configured. */
  #mayGrow: boolean
  /** Aborted when reads stop waiting for output and take only what the pipe holds. */
  readonly #final = new LateAbort()
  #stopDraining: (() => void) | undefined
  #processEnded = false
  /** The most bytes to read once it is final: other processes wrote the bytes beyond the pipe's capacity later. */
  #restBytes: number
  #ended = false
  #closed = false
  readonly #released = Promise.withResolvers<void>()
  #isReleased = false
  #readers = 0
  /** When the last read ended, on the clock of `Clock.monotonicMs`. */
  #readAtMs: number
  readonly #changes = new Changes()
  #isWatched = false
  #isTrimming = false

  /** Resumes output that the previous agent left in the store. */
  constructor(os: StreamOs, source: OutputSource) {
    this.tail = os.replay?.open()
    this.#streams = os.streams
    this.#clock = os.clock
    this.#readAtMs = os.clock.monotonicMs()
    this.#source = source
    this.#capacityBytes = Math.max(source.capacityBytes, DEFAULT_CAPACITY_BYTES)
    this.#mayGrow = source.capacityBytes === 0
    // The kernel rounds a pipe's size up, to less than its double.
    this.#restBytes = Math.max(2 * this.#capacityBytes, MAX_CAPACITY_BYTES)
    const file = source.stored.take(`${source.name}-data`)
    this.#pipe = source.stored.take(`${source.name}-pipe`)
    if (file !== undefined) this.#file = new OutputFile(os.streams, file, this.#changed)
  }

  get isClosed(): boolean {
    return this.#closed
  }

  async read(maxBytes: number, call: Call): Promise<OutputRead> {
    if (this.#closed) throw new AgentError('INTERNAL', 'cannot get stream reader', { fault: 'caller' })
    if (maxBytes === 0) return NO_OUTPUT
    this.#readers++
    try {
      if (this.#mayGrow && maxBytes > this.#capacityBytes) this.#grow(maxBytes)
      const file = this.#file ?? (await this.#openFor(call))
      const taker = takerOf(call)
      file.acknowledge(taker)
      return await this.#next(file, Math.min(maxBytes, this.#capacityBytes), { call, taker })
    } finally {
      this.#readers--
      this.#readAtMs = this.#clock.monotonicMs()
      this.#releaseWhenUnused()
    }
  }

  unreadMs(): number {
    const isRead = this.#closed || this.#readers > 0
    if (isRead || this.#streams.pipedBytes(this.#source.fd) === 0) return 0
    return this.#clock.monotonicMs() - this.#readAtMs
  }

  /** Half a second later, reads no longer wait for output. */
  processEnded(): void {
    if (this.#processEnded) return
    this.#processEnded = true
    if (this.#final.aborted) return
    this.#stopDraining = this.#clock.startTimer(DRAIN_MS, () => this.#final.abort())
  }

  get taken(): TakenByRequests['taken'] {
    return this.#file?.taken ?? []
  }

  /** Pending reads get what is in the pipe, or the end of the stream. */
  close(): Promise<void> {
    if (!this.#closed) {
      this.#closed = true
      this.#file?.seal()
      this.#stopDraining?.()
      this.#final.abort()
      this.#changes.announce()
      this.#releaseWhenUnused()
    }
    return this.#released.promise
  }

  /** Throws when the call is over by then. */
  async #openFor(call: Waiting): Promise<OutputFile> {
    const file = await this.#open()
    call.signal.throwIfAborted()
    return file
  }

  /** Stores the file before anything is read into it. */
  #open(): Promise<OutputFile> {
    this.#opening ??= this.#makeFile().catch((error: unknown) => {
      this.#opening = undefined
      throw error
    })
    return this.#opening
  }

  async #makeFile(): Promise<OutputFile> {
    const { name, stored, isTerminal } = this.#source
    if (isTerminal && this.#pipe === undefined) {
      this.#pipe = this.#streams.wholePipe()
      stored.put(`${name}-pipe`, this.#pipe)
    }
    const file = new OutputFile(
      this.#streams,
      JournalPage.newFile(this.#streams, `${name}-data`),
      this.#changed,
    )
    try {
      // Store the file after the pipe: an agent that finds the file then also finds the pipe.
      stored.put(`${name}-data`, file.fd)
      await stored.accepted()
    } catch (error) {
      file.close()
      if (this.#pipe !== undefined) this.#streams.close(this.#pipe)
      this.#pipe = undefined
      await stored.remove(`${name}-data`, `${name}-pipe`)
      throw error
    }
    this.#file = file
    return file
  }

  /** Lets a reader of large pieces make fewer calls. */
  #grow(bytes: number): void {
    this.#mayGrow = false
    const wanted = Math.min(bytes, MAX_CAPACITY_BYTES)
    if (this.#streams.growPipe(this.#source.fd, wanted)) this.#capacityBytes = wanted
  }

  /** Looks at the signal only to wait, because a call makes it at its first use. */
  async #next(
    file: OutputFile,
    maxBytes: number,
    { call, taker }: { readonly call: Waiting; readonly taker: OutputTaker },
  ): Promise<OutputRead> {
    for (;;) {
      const again = file.takenBy(taker.number)
      if (again !== undefined) return again
      if (!file.hasRoom) {
        // Do not wait for room: a closed stream frees no records.
        if (this.#closed) return NO_OUTPUT
        await this.#changes.next(call.signal)
        continue
      }
      const { unread } = file
      if (unread !== undefined) {
        return file.take(unread.start, Math.min(unread.length, maxBytes), taker)
      }
      if (this.#ended) return NO_OUTPUT
      const isFinal = this.#final.aborted
      const moved = this.#pull(file, maxBytes)
      if (moved !== undefined && moved > 0) this.#keep(file, moved)
      if (moved === undefined && !isFinal) {
        this.#trimLater(file)
        this.#watch()
        await this.#changes.next(call.signal)
      } else if (moved === undefined || moved === 0) this.#ended = true
      else if (isFinal) this.#countRest(moved)
    }
  }

  /** Bytes that the previous agent left in a terminal's pipe come first. */
  #pull(file: OutputFile, maxBytes: number): number | undefined {
    if (this.#pipe === undefined) return file.moveFrom(this.#source.fd, maxBytes)
    const left = file.moveFrom(this.#pipe, maxBytes)
    if (left !== undefined) return left
    const moved = this.#streams.move(this.#source.fd, this.#pipe, maxBytes)
    return moved === undefined || moved === 0 ? moved : file.moveFrom(this.#pipe, moved)
  }

  #keep(file: OutputFile, bytes: number): void {
    const { capacity = 0 } = this.tail ?? {}
    if (capacity > 0) this.tail?.add(bytes, file.last(Math.min(bytes, capacity)))
  }

  /** Releases the file's memory after a while without output. */
  #trimLater(file: OutputFile): void {
    if (this.#isTrimming || file.isTrimmed) return
    this.#isTrimming = true
    const { movedBytes } = file
    this.#clock.sleep(TRIM_MS, this.#final.signal).then(
      () => {
        this.#isTrimming = false
        if (file.movedBytes === movedBytes) file.trim()
        else this.#trimLater(file)
      },
      () => {},
    )
  }

  #countRest(bytes: number): void {
    this.#restBytes -= bytes
    if (this.#restBytes <= 0) this.#ended = true
  }

  readonly #changed = (): void => this.#changes.announce()

  /** Wakes the readers when the source is readable or fails; their next read reports the error. */
  #watch(): void {
    if (this.#isWatched) return
    this.#isWatched = true
    const done = () => {
      this.#isWatched = false
      this.#changes.announce()
    }
    this.#streams.readable(this.#source.fd, this.#final.signal).then(done, done)
  }

  #releaseWhenUnused(): void {
    if (!this.#closed || this.#readers > 0 || this.#isReleased) return
    this.#isReleased = true
    this.tail?.close()
    const { fd, name, stored, isTerminal } = this.#source
    this.#file?.close()
    if (this.#pipe !== undefined) this.#streams.close(this.#pipe)
    this.#streams.close(fd)
    const own = isTerminal ? 'master' : name
    void stored.remove(own, `${name}-data`, `${name}-pipe`).then(this.#released.resolve)
  }
}

function takerOf({ number, outputRead }: Call): OutputTaker {
  if (outputRead === undefined) return { number, isNamed: false }
  // Loaded on demand: most agents never need it.
  const { createHash } = process.getBuiltinModule('node:crypto')
  const digest = createHash('sha256').update(outputRead).digest()
  // 0 is no number.
  return { number: digest.readBigUInt64LE() | 1n, isNamed: true }
}
