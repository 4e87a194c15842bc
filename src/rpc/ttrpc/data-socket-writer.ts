export interface FramedSocket {
  readonly writable: boolean
  readonly writableLength: number
  write(bytes: Uint8Array, taken?: () => void): unknown
}

/** What ttRPC uses of a connected socket. The listener of 'data' has used the chunk when it returns. */
export interface ConnectedSocket extends FramedSocket {
  readonly writableNeedDrain: boolean
  pause(): unknown
  resume(): unknown
  end(): unknown
  destroy(): unknown
  on(event: 'data', listener: (chunk: Buffer) => void): unknown
  on(event: 'end' | 'close' | 'error', listener: () => void): unknown
  once(event: 'drain', listener: () => void): unknown
}

/** Writes to the data socket directly; the stream's own buffer must be empty. Returns the bytes taken, or less than 0. */
export type SendNow = (bytes: Buffer, fd?: number) => number

/** Bytes of one turn beyond this size are sent before its end. */
const QUEUED_BYTES = 32 * 1024

/** Writes to a data socket: short messages of one turn of the event loop with one system call. */
export class DataSocketWriter {
  readonly #socket: FramedSocket
  readonly #sendNow: SendNow | undefined
  readonly #onTaken: () => void
  #queue: Buffer[] = []
  #queuedBytes = 0

  /** Without `sendNow` everything goes through the stream. `onTaken`: the kernel has taken bytes, or never will. */
  constructor(socket: FramedSocket, sendNow: SendNow | undefined, onTaken: () => void) {
    this.#socket = socket
    this.#sendNow = sendNow
    this.#onTaken = onTaken
  }

  get isOpen(): boolean {
    return this.#socket.writable
  }

  get unsentBytes(): number {
    return this.#queuedBytes + this.#socket.writableLength
  }

  /** Whether {@link trySend} may send. */
  get isIdle(): boolean {
    return this.#sendNow !== undefined && this.#socket.writable && this.#socket.writableLength === 0
  }

  /** Sends the bytes at the end of the turn, or by `flush`. */
  enqueue(bytes: Buffer): void {
    if (this.#queue.length === 0) process.nextTick(() => this.flush())
    this.#queue.push(bytes)
    this.#queuedBytes += bytes.length
    if (this.#queuedBytes >= QUEUED_BYTES) this.flush()
  }

  flush(): void {
    const [first] = this.#queue
    if (first === undefined) return
    const bytes = this.#queue.length === 1 ? first : Buffer.concat(this.#queue, this.#queuedBytes)
    this.#queue = []
    this.#queuedBytes = 0
    if (this.trySend(bytes)) this.#onTaken()
    else this.#socket.write(bytes, this.#onTaken)
  }

  write(bytes: Buffer): void {
    this.flush()
    this.#socket.write(bytes)
  }

  /** A `DataSocket` sends both with one system call. */
  writeBoth(first: Buffer, second: Uint8Array): void {
    this.write(first)
    this.#socket.write(second, this.#onTaken)
  }

  /** Writes past the stream. Returns false when that was not possible, and nothing was sent. */
  trySend(bytes: Buffer, fd?: number): boolean {
    if (!this.isIdle) return false
    const sent = this.#sendNow?.(bytes, fd) ?? -1
    if (sent <= 0) return false
    if (sent < bytes.length) this.#socket.write(bytes.subarray(sent))
    return true
  }
}
