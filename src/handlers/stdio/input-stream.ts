import { abortable, LateAbort } from '../../base/abort.ts'
import { Changes } from '../../base/changes.ts'
import { AgentError } from '../../base/errors.ts'
import { bytesOf, type StoredBytes } from '../../base/stored-bytes.ts'
import type { Fd, Streams } from '../../os/streams/streams.ts'
import { type Call, either, type Taken, type TakenByRequests } from '../../state/request.ts'
import { InputFile } from './input-file.ts'
import { JournalPage } from './journal-page.ts'
import type { ProcessInput } from './process-streams.ts'
import type { StoredDescriptors } from './stored-descriptors.ts'

export interface InputTarget {
  /** The agent's end of the pipe, or a duplicate of the terminal's master; undefined when the input has ended. */
  readonly fd: Fd | undefined
  readonly isTerminal: boolean
  readonly stored: StoredDescriptors
}

/**
 * The agent's end of a process's input. Writes run one after the other, each complete, and the end follows them. Their
 * data goes through {@link InputFile}, unless it is in a file of the broker and the input is a pipe. Owns its descriptors
 * until it is ended or closed.
 */
export class InputStream implements ProcessInput {
  readonly #streams: Streams
  readonly #target: InputTarget
  #fd: Fd | undefined
  #file: InputFile | undefined
  /** Terminal input passes this pipe, because splice(2) needs a pipe at one end. */
  #pipe: Fd | undefined
  /** Ends a blocked write when the process has ended or the stream is closed. */
  readonly #stop = new LateAbort()
  #queue: Promise<void> = Promise.resolve()
  #ending: Promise<void> | undefined
  /** The write during which the previous agent died. */
  #resumed:
    | { readonly number: bigint; readonly written: Promise<void>; readonly stop: AbortController }
    | undefined
  readonly #room = new Changes()

  /** Resumes input that the previous agent left in the store. */
  constructor(streams: Streams, target: InputTarget) {
    this.#streams = streams
    this.#target = target
    this.#fd = target.fd
    if (target.fd === undefined) this.#ending = Promise.resolve()
    const file = target.stored.take('stdin-data')
    this.#pipe = target.stored.take('stdin-pipe')
    if (file !== undefined) this.#resume(new InputFile(streams, file))
    if (target.fd === undefined && this.#numbers.length === 0) void this.#closeFile()
  }

  async write(data: Uint8Array | StoredBytes, { signal, number }: Call): Promise<Taken> {
    if (this.#file?.isDone(number)) return this.#written(number)
    if (this.#resumed?.number === number) {
      await this.#untilResumed(this.#resumed, signal)
      return this.#written(number)
    }
    if (isMoved(this.#streams, data)) return NOTHING
    if (this.#ending !== undefined || this.#fd === undefined)
      throw new AgentError('INTERNAL', 'Cannot get writer', { fault: 'caller' })
    signal.throwIfAborted()
    const isStored = !(data instanceof Uint8Array) && !this.#target.isTerminal
    const written = this.#queue.then(() =>
      isStored ? this.#moveStored(data, signal) : this.#writeAll(bytesOf(data), signal, number),
    )
    // The next write runs even if this one fails; the caller of this one gets the error.
    this.#queue = written.catch(() => {})
    await abortable(written, signal)
    return isStored ? NOTHING : this.#written(number)
  }

  end(): Promise<void> {
    this.#ending ??= this.#queue.then(() => this.#release())
    return this.#ending
  }

  get taken(): TakenByRequests['taken'] {
    return this.#numbers.map((number) => [number, either(() => this.#stopOrForget(number))])
  }

  #stopOrForget(number: bigint): void {
    if (this.#resumed?.number === number) this.#resumed.stop.abort(BROKEN_PIPE)
    else this.#forget(number)
  }

  get #numbers(): readonly bigint[] {
    return this.#file?.numbers ?? []
  }

  processEnded(): void {
    this.#stop.abort(BROKEN_PIPE)
  }

  async close(): Promise<void> {
    this.#stop.abort(BROKEN_PIPE)
    const released = this.#release()
    await Promise.all([released, this.#closeFile()])
  }

  #resume(file: InputFile): void {
    this.#file = file
    const number = file.current?.number
    if (number === undefined) {
      this.#emptyPipe()
      return
    }
    const stop = new AbortController()
    const written = this.#queue.then(() => this.#moveAll(file, stop.signal))
    this.#resumed = { number, written, stop }
    this.#queue = written
      .catch(() => {})
      .then(() => {
        this.#resumed = undefined
      })
  }

  async #untilResumed(
    { written, stop }: { readonly written: Promise<void>; readonly stop: AbortController },
    signal: AbortSignal,
  ): Promise<void> {
    const onAbort = () => stop.abort(signal.reason)
    signal.addEventListener('abort', onAbort, { once: true })
    try {
      await abortable(written, signal)
    } finally {
      signal.removeEventListener('abort', onAbort)
    }
  }

  /** The process keeps the bytes even if the answer is dropped; only the request's record is freed. */
  #written(number: bigint): Taken {
    return either(() => this.#forget(number))
  }

  #forget(number: bigint): void {
    this.#file?.forget(number)
    this.#room.announce()
    if (this.#fd === undefined && this.#numbers.length === 0) void this.#closeFile()
  }

  async #writeAll(data: Uint8Array, signal: AbortSignal, number: bigint): Promise<void> {
    signal.throwIfAborted()
    if (this.#fd === undefined) throw BROKEN_PIPE
    const file = this.#file ?? (await this.#makeFile())
    while (!file.hasRoom) await this.#room.next(AbortSignal.any([signal, this.#stop.signal]))
    signal.throwIfAborted()
    if (this.#file === undefined) throw BROKEN_PIPE
    file.begin(data, number)
    await this.#moveAll(file, signal)
  }

  /**
   * Moves the data of a long request out of the broker's file. That survives the agent, and its position tells how much
   * was moved: if the request is sent again, the rest is moved.
   */
  async #moveStored(data: StoredBytes, signal: AbortSignal): Promise<void> {
    for (;;) {
      signal.throwIfAborted()
      const { place } = data
      if (this.#fd === undefined || place === undefined) throw BROKEN_PIPE
      const { fd, offset } = place
      const position = this.#streams.position(fd)
      if (position < offset) this.#streams.setPosition(fd, offset)
      const restBytes = offset + data.length - Math.max(position, offset)
      if (this.#move(fd, this.#fd, restBytes)) return
      await this.#untilWritable(this.#fd, signal)
    }
  }

  /** Moves the rest of the current write out of the file; discards it on failure. */
  async #moveAll(file: InputFile, signal: AbortSignal): Promise<void> {
    try {
      for (;;) {
        signal.throwIfAborted()
        if (this.#fd === undefined) throw BROKEN_PIPE
        const isMoved =
          this.#pipe === undefined
            ? this.#move(file.fd, this.#fd, file.current?.restBytes ?? 0)
            : this.#moveThrough(file, this.#fd, this.#pipe)
        if (isMoved) break
        await this.#untilWritable(this.#fd, signal)
      }
      file.finish()
    } catch (error) {
      if (this.#file !== undefined) {
        file.abandon()
        this.#emptyPipe()
      }
      throw error
    }
  }

  /** Returns whether everything is moved. */
  #move(source: Fd, target: Fd, bytes: number): boolean {
    for (let restBytes = bytes; restBytes > 0; ) {
      const moved = this.#streams.move(source, target, restBytes)
      if (moved === undefined) return false
      restBytes -= moved
    }
    return true
  }

  #moveThrough(file: InputFile, fd: Fd, pipe: Fd): boolean {
    for (;;) {
      const restBytes = file.current?.restBytes ?? 0
      if (restBytes > 0) this.#streams.move(file.fd, pipe, restBytes)
      const heldBytes = this.#streams.pipedBytes(pipe)
      if (heldBytes === 0) return true
      if (this.#streams.move(pipe, fd, heldBytes) === undefined) return false
    }
  }

  async #untilWritable(fd: Fd, signal: AbortSignal): Promise<void> {
    await this.#streams.writable(fd, AbortSignal.any([signal, this.#stop.signal]))
  }

  /** Discards what an ended write left in the pipe to the terminal. */
  #emptyPipe(): void {
    if (this.#pipe === undefined) return
    const heldBytes = this.#streams.pipedBytes(this.#pipe)
    if (heldBytes > 0) this.#streams.tryRead(this.#pipe, heldBytes)
  }

  /** Stores the file before anything is written from it. */
  async #makeFile(): Promise<InputFile> {
    const { stored, isTerminal } = this.#target
    if (isTerminal && this.#pipe === undefined) {
      this.#pipe = this.#streams.wholePipe()
      stored.put('stdin-pipe', this.#pipe)
    }
    const file = new InputFile(this.#streams, JournalPage.newFile(this.#streams, 'stdin-data'))
    try {
      // Store the file after the pipe: an agent that finds the file then also finds the pipe.
      stored.put('stdin-data', file.fd)
      await stored.accepted()
      if (this.#fd === undefined) throw BROKEN_PIPE
    } catch (error) {
      file.close()
      await this.#closeFile()
      throw error
    }
    this.#file = file
    return file
  }

  async #release(): Promise<void> {
    if (this.#fd === undefined) return
    this.#streams.close(this.#fd)
    this.#fd = undefined
    await this.#target.stored.remove('stdin')
    // Keep the file while undelivered requests may be sent again.
    if (this.#numbers.length === 0) await this.#closeFile()
  }

  async #closeFile(): Promise<void> {
    this.#file?.close()
    if (this.#pipe !== undefined) this.#streams.close(this.#pipe)
    this.#file = undefined
    this.#pipe = undefined
    await this.#target.stored.remove('stdin-data', 'stdin-pipe')
  }
}

/** A long request has no record. */
const NOTHING = either(() => {})

/** Whether the previous agent has moved all of the data. */
function isMoved(streams: Streams, data: Uint8Array | StoredBytes): boolean {
  if (data instanceof Uint8Array || data.place === undefined) return false
  const { fd, offset } = data.place
  return streams.position(fd) === offset + data.length
}

/** One for all: each process ends its input with it. */
const BROKEN_PIPE = new AgentError('INTERNAL', 'write stdin: EPIPE: the process has ended', {
  errno: 'EPIPE',
})
