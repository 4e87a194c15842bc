import { abortable } from '../../../src/base/abort.ts'
import { errnoOf } from '../../../src/base/errors.ts'
import { kernelError } from '../../../src/os/errors.ts'
import type { Fd, RelayResult, Streams } from '../../../src/os/streams/streams.ts'

/** The pipes behind a descriptor: an end of a pipe has one of them, a side of a pty both. */
interface OpenFile {
  readonly from: FakePipe | undefined
  readonly to: FakePipe | undefined
}

/** Pipes and ptys in memory. The child's ends work with the same calls, so a test plays the child. */
export class FakeStreams implements Streams {
  readonly windowSizes = new Map<Fd, { readonly rows: number; readonly columns: number }>()
  readonly #open = new Map<Fd, OpenFile>()
  #lastFd = 100

  /** All open descriptors. */
  get openFds(): readonly Fd[] {
    return [...this.#open.keys()]
  }

  pipe(direction: 'child-writes' | 'child-reads', sizeBytes = 0): { parentEnd: Fd; childEnd: Fd } {
    const pipe = new FakePipe(sizeBytes > 0 ? sizeBytes : 65536)
    const reading = this.#register({ from: pipe, to: undefined })
    const writing = this.#register({ from: undefined, to: pipe })
    return direction === 'child-writes'
      ? { parentEnd: reading, childEnd: writing }
      : { parentEnd: writing, childEnd: reading }
  }

  /** Makes a pty without line discipline: each side reads what is written to the other. */
  pty(): { master: Fd; slave: Fd } {
    const [master, slave] = this.#twoWay(4096)
    return { master, slave }
  }

  /** Makes both ends of a stream socket. */
  socketPair(): { parentEnd: Fd; childEnd: Fd } {
    const [parentEnd, childEnd] = this.#twoWay(65536)
    return { parentEnd, childEnd }
  }

  #twoWay(capacity: number): readonly [Fd, Fd] {
    const [up, down] = [new FakePipe(capacity), new FakePipe(capacity)]
    return [this.#register({ from: up, to: down }), this.#register({ from: down, to: up })]
  }

  close(fd: Fd): void {
    const { from, to } = this.#file('close', fd)
    this.#open.delete(fd)
    if (from !== undefined) from.readers -= 1
    if (to !== undefined) to.writers -= 1
    from?.notify()
    to?.notify()
  }

  duplicate(fd: Fd): Fd {
    return this.#register(this.#file('duplicate', fd))
  }

  growPipe(fd: Fd, sizeBytes: number): boolean {
    const { from, to } = this.#file('grow', fd)
    if (from !== undefined && to !== undefined) return false
    from?.grow(sizeBytes)
    to?.grow(sizeBytes)
    return true
  }

  readable(fd: Fd, signal?: AbortSignal): Promise<void> {
    return this.#ready(fd, signal, ({ from }) => [from, from?.isReadable ?? true])
  }

  writable(fd: Fd, signal?: AbortSignal): Promise<void> {
    return this.#ready(fd, signal, ({ to }) => [to, to?.isWritable ?? true])
  }

  tryRead(fd: Fd, maxBytes: number): Buffer | undefined {
    const { from } = this.#file('read', fd)
    if (from === undefined) throw kernelError('read', `fd ${fd}`, 'EBADF')
    return from.read(maxBytes)
  }

  tryWrite(fd: Fd, data: Uint8Array): number {
    const { to } = this.#file('write', fd)
    if (to === undefined) throw kernelError('write', `fd ${fd}`, 'EBADF')
    if (to.readers === 0) throw kernelError('write', `fd ${fd}`, 'EPIPE')
    return to.write(data)
  }

  setWindowSize(fd: Fd, rows: number, columns: number): void {
    this.#file('set the window size of', fd)
    this.windowSizes.set(fd, { rows, columns })
  }

  async relay(source: Fd, target: Fd, signal?: AbortSignal, drain?: AbortSignal): Promise<RelayResult> {
    const moved = { bytes: 0n }
    const stopped = new AbortController()
    const stop = AbortSignal.any([stopped.signal, ...(signal === undefined ? [] : [signal])])
    try {
      const gone = this.#readerGone(target, stop)
      gone.catch(() => {})
      await Promise.race([gone, this.#moveAll(source, target, moved, stop, drain)])
      return { bytes: moved.bytes, errno: undefined }
    } catch (error) {
      return { bytes: moved.bytes, errno: signal?.aborted ? 'ECANCELED' : errnoOf(error) }
    } finally {
      stopped.abort()
      this.close(source)
      this.close(target)
    }
  }

  async #moveAll(
    source: Fd,
    target: Fd,
    moved: { bytes: bigint },
    stop: AbortSignal,
    drain: AbortSignal | undefined,
  ): Promise<void> {
    for (;;) {
      const wait = this.readable(source, drain === undefined ? stop : AbortSignal.any([stop, drain]))
      await wait.catch((error: unknown) => {
        if (drain?.aborted !== true || stop.aborted) throw error
      })
      let chunk = this.tryRead(source, 65536) ?? Buffer.alloc(0)
      if (chunk.length === 0) return
      while (chunk.length > 0) {
        const written = this.tryWrite(target, chunk)
        moved.bytes += BigInt(written)
        chunk = chunk.subarray(written)
        if (chunk.length > 0) await this.writable(target, stop)
      }
    }
  }

  async #readerGone(fd: Fd, signal: AbortSignal): Promise<never> {
    await this.#ready(fd, signal, ({ to }) => [to, to?.readers === 0])
    throw kernelError('write', `fd ${fd}`, 'EPIPE')
  }

  async #ready(
    fd: Fd,
    signal: AbortSignal | undefined,
    look: (file: OpenFile) => readonly [FakePipe | undefined, boolean],
  ): Promise<void> {
    for (;;) {
      signal?.throwIfAborted()
      const [pipe, ready] = look(this.#file('poll', fd))
      if (ready || pipe === undefined) return
      const changed = Promise.withResolvers<void>()
      const forget = pipe.onChange(changed.resolve)
      await (signal === undefined ? changed.promise : abortable(changed.promise, signal)).finally(forget)
    }
  }

  #register(file: OpenFile): Fd {
    this.#lastFd += 1
    this.#open.set(this.#lastFd, file)
    if (file.from !== undefined) file.from.readers += 1
    if (file.to !== undefined) file.to.writers += 1
    return this.#lastFd
  }

  #file(call: string, fd: Fd): OpenFile {
    const file = this.#open.get(fd)
    if (file === undefined) throw kernelError(call, `fd ${fd}`, 'EBADF')
    return file
  }
}

/** A kernel pipe with its capacity, EOF and EPIPE. */
class FakePipe {
  readers = 0
  writers = 0
  #capacity: number
  #bytes = Buffer.alloc(0)
  readonly #changed = new Set<() => void>()

  constructor(capacity: number) {
    this.#capacity = capacity
  }

  get isReadable(): boolean {
    return this.#bytes.length > 0 || this.writers === 0
  }

  get isWritable(): boolean {
    return this.#bytes.length < this.#capacity || this.readers === 0
  }

  /** Enlarges the capacity to at least this much. */
  grow(capacity: number): void {
    this.#capacity = Math.max(this.#capacity, capacity)
  }

  /** Reads; empty at EOF, undefined when a read would block. */
  read(maxBytes: number): Buffer | undefined {
    if (!this.isReadable) return undefined
    const taken = this.#bytes.subarray(0, maxBytes)
    this.#bytes = this.#bytes.subarray(taken.length)
    this.notify()
    return taken
  }

  /** Writes as much as there is room for and returns the number of bytes. Check `readers` first. */
  write(data: Uint8Array): number {
    const taken = data.subarray(0, this.#capacity - this.#bytes.length)
    this.#bytes = Buffer.concat([this.#bytes, taken])
    this.notify()
    return taken.length
  }

  /** Calls back once at the next change of bytes or ends, unless the returned function is called first. */
  onChange(callback: () => void): () => void {
    this.#changed.add(callback)
    return () => this.#changed.delete(callback)
  }

  notify(): void {
    const callbacks = [...this.#changed]
    this.#changed.clear()
    for (const callback of callbacks) callback()
  }
}
