import { abortable } from '../../../../src/base/abort.ts'
import { errnoOf } from '../../../../src/base/errors.ts'
import { kernelError } from '../../../../src/os/errors.ts'
import type { Fd, RelayLink, RelayOptions, RelayResult, Streams } from '../../../../src/os/streams/streams.ts'

/** The pipes behind a descriptor: one for an end of a pipe, both for a side of a pty; or its file in memory. */
interface OpenFile {
  readonly from: FakePipe | undefined
  readonly to: FakePipe | undefined
  readonly memory?: FakeMemory
  readonly socket?: { isConnected: boolean }
  readonly isSocket?: boolean
}

/** In-memory pipes and ptys. The same calls work on the child's ends, so a test plays the child. */
export class FakeStreams implements Streams {
  #relayedBytes = 0n
  readonly windowSizes = new Map<Fd, { readonly rows: number; readonly columns: number }>()
  readonly #open = new Map<Fd, OpenFile>()
  #lastFd = 100

  get openFds(): readonly Fd[] {
    return [...this.#open.keys()]
  }

  /** Those of files in memory with this name. */
  openFilesNamed(name: string): readonly Fd[] {
    return [...this.#open].flatMap(([fd, { memory }]) => (memory?.name === name ? [fd] : []))
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

  socketPair(): { parentEnd: Fd; childEnd: Fd } {
    const [parentEnd, childEnd] = this.#twoWay(65536, true)
    return { parentEnd, childEnd }
  }

  socket(): Fd {
    return this.#register({
      from: new FakePipe(65536),
      to: new FakePipe(65536),
      socket: { isConnected: false },
      isSocket: true,
    })
  }

  isConnected(socket: Fd): boolean {
    return this.#file('connect', socket).socket?.isConnected ?? false
  }

  /** Returns the other end of a socket, which is then connected. */
  otherEnd(socket: Fd): Fd {
    const { from, to, socket: state } = this.#file('connect', socket)
    if (state !== undefined) state.isConnected = true
    return this.#register({ from: to, to: from, isSocket: true })
  }

  #twoWay(capacity: number, isSocket = false): readonly [Fd, Fd] {
    const [up, down] = [new FakePipe(capacity), new FakePipe(capacity)]
    return [
      this.#register({ from: up, to: down, isSocket }),
      this.#register({ from: down, to: up, isSocket }),
    ]
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

  peek(fd: Fd, maxBytes: number): Buffer | undefined {
    return this.#file('peek', fd).from?.peek(maxBytes)
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

  memoryFile(name: string): Fd {
    return this.#register({ from: undefined, to: undefined, memory: new FakeMemory(name) })
  }

  wholePipe(): Fd {
    const pipe = new FakePipe(65536)
    return this.#register({ from: pipe, to: pipe })
  }

  pipedBytes(fd: Fd): number {
    return this.#file('count', fd).from?.length ?? 0
  }

  move(source: Fd, target: Fd, maxBytes: number): number | undefined {
    const [{ from, memory }, into] = [this.#file('splice', source), this.#file('splice', target)]
    if (into.to !== undefined && into.to.readers === 0) throw kernelError('splice', `fd ${source}`, 'EPIPE')
    const room = Math.min(maxBytes, into.to?.room ?? maxBytes)
    if (room === 0) return maxBytes === 0 ? 0 : undefined
    const data = from === undefined ? memory?.next(room) : from.read(room)
    if (data !== undefined) into.to?.write(data)
    if (data !== undefined) into.memory?.append(data)
    return data?.length
  }

  readAt(fd: Fd, offset: number, maxBytes: number): Buffer {
    return this.#memory('read', fd).read(offset, maxBytes)
  }

  writeAt(fd: Fd, offset: number, data: Uint8Array): void {
    this.#memory('write', fd).write(offset, data)
  }

  position(fd: Fd): number {
    return this.#memory('seek', fd).position
  }

  setPosition(fd: Fd, offset: number): void {
    this.#memory('seek', fd).position = offset
  }

  truncate(fd: Fd, sizeBytes: number): void {
    this.#memory('truncate', fd).truncate(sizeBytes)
  }

  punchHole(fd: Fd, offset: number, bytes: number): void {
    this.#memory('punch a hole in', fd).punch(offset, bytes)
  }

  isMemoryFile(fd: Fd): boolean {
    return this.#file('look at', fd).memory !== undefined
  }

  memoryBytes(fd: Fd): number {
    return this.#memory('measure', fd).usedBytes
  }

  relayedBytes(): bigint {
    return this.#relayedBytes
  }

  async relay(
    source: Fd | undefined,
    target: Fd | undefined,
    { link, ...options }: RelayOptions = {},
  ): Promise<RelayResult> {
    const sides = { source, target }
    for (let bytes = 0n; ; ) {
      const detaching = new AbortController()
      const attached = Promise.withResolvers<Fd | undefined>()
      const { isInput, connection } = this.#connectionOf(sides)
      const relay = { detach: () => detaching.abort(), attach: (fd: Fd) => attached.resolve(fd) }
      link?.started(relay)
      if (connection !== undefined && sides.source !== undefined && sides.target !== undefined) {
        const result = await this.#relayOnce(sides.source, sides.target, options, detaching.signal)
        bytes += result.bytes
        if (link !== undefined) this.#count(link.totals, result.bytes)
        if (!detaching.signal.aborted) return { ...result, bytes }
        this.close(connection)
        link?.detached()
      }
      const stop = () => attached.resolve(undefined)
      options.signal?.addEventListener('abort', stop)
      if (options.signal?.aborted) stop()
      const next = await attached.promise
      sides[isInput ? 'source' : 'target'] = next
      if (next !== undefined) continue
      for (const fd of [sides.source, sides.target, options.through]) if (fd !== undefined) this.close(fd)
      return { bytes, errno: 'ECANCELED' }
    }
  }

  #connectionOf({ source, target }: { readonly source: Fd | undefined; readonly target: Fd | undefined }) {
    const isInput = source === undefined || this.#file('look at', source).isSocket === true
    return { isInput, connection: isInput ? source : target }
  }

  #count({ fd, offset }: RelayLink['totals'], bytes: bigint): void {
    const total = this.readAt(fd, offset, 8).readBigUInt64LE(0) + bytes
    const counted = Buffer.alloc(16)
    counted.writeBigUInt64LE(total, 0)
    counted.writeBigUInt64LE(total, 8)
    this.writeAt(fd, offset, counted)
  }

  async #relayOnce(
    source: Fd,
    target: Fd,
    { signal, drain, through }: RelayOptions,
    detaching: AbortSignal,
  ): Promise<RelayResult> {
    const moved = { bytes: 0n }
    const stopped = new AbortController()
    const stop = AbortSignal.any([stopped.signal, detaching, ...(signal === undefined ? [] : [signal])])
    try {
      const gone = this.#readerGone(target, stop)
      gone.catch(() => {})
      if (through !== undefined) await this.#moveLeft(through, target, stop)
      await Promise.race([gone, this.#moveAll(source, target, moved, stop, drain)])
      return { bytes: moved.bytes, errno: undefined }
    } catch (error) {
      return { bytes: moved.bytes, errno: signal?.aborted ? 'ECANCELED' : errnoOf(error) }
    } finally {
      this.#relayedBytes += moved.bytes
      stopped.abort()
      if (!detaching.aborted) {
        this.close(source)
        this.close(target)
        if (through !== undefined) this.close(through)
      }
    }
  }

  async #moveLeft(pipe: Fd, target: Fd, stop: AbortSignal): Promise<void> {
    while (this.pipedBytes(pipe) > 0) {
      if (this.move(pipe, target, this.pipedBytes(pipe)) === undefined) await this.writable(target, stop)
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

  #memory(call: string, fd: Fd): FakeMemory {
    const { memory } = this.#file(call, fd)
    if (memory === undefined) throw kernelError(call, `fd ${fd}`, 'EINVAL')
    return memory
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

  get length(): number {
    return this.#bytes.length
  }

  get room(): number {
    return this.#capacity - this.#bytes.length
  }

  get isReadable(): boolean {
    return this.#bytes.length > 0 || this.writers === 0
  }

  get isWritable(): boolean {
    return this.#bytes.length < this.#capacity || this.readers === 0
  }

  grow(capacity: number): void {
    this.#capacity = Math.max(this.#capacity, capacity)
  }

  peek(maxBytes: number): Buffer | undefined {
    return this.isReadable ? this.#bytes.subarray(0, maxBytes) : undefined
  }

  /** Returns an empty buffer at EOF, undefined when a read would block. */
  read(maxBytes: number): Buffer | undefined {
    if (!this.isReadable) return undefined
    const taken = this.#bytes.subarray(0, maxBytes)
    this.#bytes = this.#bytes.subarray(taken.length)
    this.notify()
    return taken
  }

  /** Writes as much as fits and returns the number of bytes. Check `readers` first. */
  write(data: Uint8Array): number {
    const taken = data.subarray(0, this.#capacity - this.#bytes.length)
    this.#bytes = Buffer.concat([this.#bytes, taken])
    this.notify()
    return taken.length
  }

  /** Calls back once at the next change, unless the returned function is called first. */
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

const PAGE_BYTES = 4096

/** The pages of a file in memory, and the position that all its descriptors share. */
class FakeMemory {
  readonly name: string
  position = 0
  #size = 0
  readonly #pages = new Map<number, Buffer>()

  constructor(name: string) {
    this.name = name
  }

  get usedBytes(): number {
    return this.#pages.size * PAGE_BYTES
  }

  read(offset: number, maxBytes: number): Buffer {
    const data = Buffer.alloc(Math.max(0, Math.min(maxBytes, this.#size - offset)))
    for (let at = 0; at < data.length; at++) {
      data[at] = this.#pages.get(Math.floor((offset + at) / PAGE_BYTES))?.[(offset + at) % PAGE_BYTES] ?? 0
    }
    return data
  }

  write(offset: number, data: Uint8Array): void {
    for (const [at, byte] of data.entries()) {
      const page = Math.floor((offset + at) / PAGE_BYTES)
      const bytes = this.#pages.get(page) ?? Buffer.alloc(PAGE_BYTES)
      this.#pages.set(page, bytes)
      bytes[(offset + at) % PAGE_BYTES] = byte
    }
    this.#size = Math.max(this.#size, offset + data.length)
  }

  next(maxBytes: number): Buffer {
    const data = this.read(this.position, maxBytes)
    this.position += data.length
    return data
  }

  append(data: Uint8Array): void {
    this.write(this.position, data)
    this.position += data.length
  }

  truncate(sizeBytes: number): void {
    for (const page of [...this.#pages.keys()]) if (page * PAGE_BYTES >= sizeBytes) this.#pages.delete(page)
    this.#size = sizeBytes
  }

  /** Frees whole pages only; the kernel also zeroes parts of pages. */
  punch(offset: number, bytes: number): void {
    for (const page of [...this.#pages.keys()]) {
      const start = page * PAGE_BYTES
      if (start >= offset && start + PAGE_BYTES <= offset + bytes) this.#pages.delete(page)
    }
  }
}
