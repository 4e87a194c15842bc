import { EventEmitter } from 'node:events'
// biome-ignore lint/style/noRestrictedImports: the socket does not block, and is read once there is something.
import { readSync, writevSync } from 'node:fs'
import { errnoOf } from '../../base/errors.ts'
import { checkErrno } from '../errors.ts'
import type { Native } from '../native.ts'
import type { Fd } from '../streams/streams.ts'

export const READ_BYTES = 64 * 1024

/** With as many unsent bytes a writer should wait for 'drain'. */
const DRAIN_BYTES = 64 * 1024

/** The most buffers of one writev(2). */
const BUFFERS_AT_ONCE = 64

interface Unsent {
  bytes: Uint8Array
  readonly taken: (() => void) | undefined
}

interface Events {
  data: [chunk: Buffer]
  end: []
  drain: []
  finish: []
  error: [error: unknown]
  close: []
}

/**
 * A connected socket with the part of `net.Socket` that ttRPC uses: the modules of that one take 2 ms of a start. It begins
 * paused, the chunk of a 'data' event is overwritten after it, and when the other side has ended, this one ends, too.
 */
export class DataSocket extends EventEmitter<Events> {
  readonly #native: Native
  readonly #fd: Fd
  readonly #memory: Buffer
  destroyed = false
  readableEnded = false
  writableLength = 0
  writableNeedDrain = false
  #isReading = false
  #isEnding = false
  #hasFinished = false
  /** The number of the addon's watch. */
  #watch: number | undefined
  #unsent: Unsent[] = []

  /** Owns the descriptor. All sockets may read into the same memory of {@link READ_BYTES}, for a chunk is used at once. */
  constructor(native: Native, fd: Fd, memory: Buffer) {
    super()
    checkErrno('unblock', `fd ${fd}`, native.setNonBlocking(fd, true))
    this.#native = native
    this.#fd = fd
    this.#memory = memory
  }

  get writable(): boolean {
    return !this.#isEnding && !this.destroyed
  }

  pause(): void {
    if (this.#isReading) this.#native.stopReading(this.#fd)
    this.#isReading = false
  }

  resume(): void {
    if (this.#isReading || this.readableEnded || this.destroyed) return
    const start = () => this.#native.startReading(this.#fd, () => this.#read())
    this.#isReading = this.#done(() => checkErrno('poll', `fd ${this.#fd}`, start())) !== undefined
  }

  /** Sends at the end of the turn. `taken`: the kernel has the bytes, or never gets them. */
  write(bytes: Uint8Array, taken?: () => void): void {
    if (!this.writable) {
      taken?.()
      return
    }
    if (this.#unsent.length === 0) process.nextTick(() => this.#send())
    this.#unsent.push({ bytes, taken })
    this.writableLength += bytes.length
    this.writableNeedDrain ||= this.writableLength >= DRAIN_BYTES
  }

  end(): void {
    if (!this.writable) return
    this.#isEnding = true
    this.#finish()
  }

  destroy(error?: unknown): void {
    if (this.destroyed) return
    this.destroyed = true
    this.pause()
    if (this.#watch !== undefined) this.#native.cancelWatch(this.#fd, this.#watch)
    this.#native.close(this.#fd)
    const unsent = this.#unsent
    this.#unsent = []
    this.writableLength = 0
    process.nextTick(() => {
      for (const { taken } of unsent) taken?.()
      if (error !== undefined) this.emit('error', error)
      this.emit('close')
    })
  }

  #read(): void {
    const chunk = this.#memory
    const bytes = this.#done(() => readSync(this.#fd, chunk, 0, READ_BYTES, null))
    if (bytes === 0) {
      this.pause()
      this.readableEnded = true
      this.emit('end')
      if (this.writable) this.end()
      else if (this.#unsent.length === 0) this.destroy()
    } else if (bytes !== undefined) this.emit('data', chunk.subarray(0, bytes))
  }

  #send(): void {
    while (this.#unsent.length > 0) {
      const buffers = this.#unsent.slice(0, BUFFERS_AT_ONCE).map(({ bytes }) => bytes)
      const sent = this.#done(() => writevSync(this.#fd, buffers))
      if (sent === undefined) {
        if (!this.destroyed) this.#awaitRoom()
        return
      }
      this.#took(sent)
    }
    if (this.destroyed) return
    if (this.writableNeedDrain) {
      this.writableNeedDrain = false
      this.emit('drain')
    }
    if (this.#isEnding) this.#finish()
  }

  #awaitRoom(): void {
    const ready = () => {
      this.#watch = undefined
      this.#send()
    }
    const watch = () => this.#native.watchFd(this.#fd, 'write', ready)
    this.#watch = this.#done(() => checkErrno('poll', `fd ${this.#fd}`, watch()))
  }

  #took(sent: number): void {
    this.writableLength -= sent
    let left = sent
    for (let [first] = this.#unsent; first !== undefined; [first] = this.#unsent) {
      if (left < first.bytes.length) {
        first.bytes = first.bytes.subarray(left)
        return
      }
      left -= first.bytes.length
      this.#unsent.shift()
      first.taken?.()
    }
  }

  /** A listener may have written before it ended the socket. */
  #finish(): void {
    if (this.#hasFinished || this.#unsent.length > 0) return
    this.#hasFinished = true
    this.emit('finish')
    if (this.readableEnded) this.destroy()
  }

  /** Undefined when the socket is not ready, or has failed. */
  #done(call: () => number): number | undefined {
    try {
      return call()
    } catch (error) {
      if (errnoOf(error) !== 'EAGAIN') this.destroy(error)
      return undefined
    }
  }
}
