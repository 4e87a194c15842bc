/** An open file descriptor of this process. Its owner closes it. */
export type Fd = number

/** Pipes, ptys and fifos: readiness on the loop, then one non-blocking system call. */
export interface Streams {
  /** pipe2(O_CLOEXEC). `parentEnd` is non-blocking, `childEnd` blocking. `sizeBytes` above 0 sets F_SETPIPE_SZ. */
  pipe(
    direction: 'child-writes' | 'child-reads',
    sizeBytes?: number,
  ): { readonly parentEnd: Fd; readonly childEnd: Fd }
  /** Closes `fd`. Pending waits on it reject with EBADF. */
  close(fd: Fd): void
  /** Another descriptor (O_CLOEXEC) of the same open file. */
  duplicate(fd: Fd): Fd
  /** Enlarges a pipe to at least `sizeBytes`. Returns whether the kernel allows it; a pty keeps its size. */
  growPipe(fd: Fd, sizeBytes: number): boolean
  /** Resolves when a read would not block (data, EOF or error). */
  readable(fd: Fd, signal?: AbortSignal): Promise<void>
  writable(fd: Fd, signal?: AbortSignal): Promise<void>
  /** One read(2). Returns the bytes, empty at EOF (also for EIO of a pty), or undefined when it would block. */
  tryRead(fd: Fd, maxBytes: number): Buffer | undefined
  /** The first bytes of a socket, which stay in it; empty at its end. Undefined when there are none. */
  peek(fd: Fd, maxBytes: number): Buffer | undefined
  /** One write(2). Returns the number of bytes, 0 when it would block. Throws EPIPE when no reader is left. */
  tryWrite(fd: Fd, data: Uint8Array): number
  /** An empty memfd_create(2). Its position is that of all its duplicates, in other processes too. */
  memoryFile(name: string): Fd
  /** Both ends of a new pipe as one non-blocking descriptor: it never ends, and never lacks a reader. */
  wholePipe(): Fd
  pipedBytes(fd: Fd): number
  /**
   * One splice(2) to or from a pipe, which also moves a memory file's position: a kill loses and repeats no byte.
   * Returns the number of bytes, 0 at EOF (also for EIO of a pty), or undefined when it would block. Throws EPIPE when
   * the target has no reader.
   */
  move(source: Fd, target: Fd, maxBytes: number): number | undefined
  readAt(fd: Fd, offset: number, maxBytes: number): Buffer
  /** pwrite(2) of all of `data`. Less than 4 KiB in a page are written whole or not at all. */
  writeAt(fd: Fd, offset: number, data: Uint8Array): void
  position(fd: Fd): number
  setPosition(fd: Fd, offset: number): void
  /** Ends a file in memory at `sizeBytes`. Pages that a pipe took from it by {@link move} stay as they are. */
  truncate(fd: Fd, sizeBytes: number): void
  /** Frees the memory of a part of a file; its bytes become zeros. */
  punchHole(fd: Fd, offset: number, bytes: number): void
  setWindowSize(fd: Fd, rows: number, columns: number): void
  /**
   * Moves bytes on a native thread until EOF, an error or a signal. Owns the descriptors and closes them at the end, so
   * that EOF is a full close. When it cannot start, it throws and owns nothing. The promise never rejects. With a `link`,
   * one of the two may be missing: the relay then waits for its connection.
   */
  relay(source: Fd | undefined, target: Fd | undefined, options?: RelayOptions): Promise<RelayResult>
  relayedBytes(): bigint
}

export interface RelayOptions {
  /** Ends it with `ECANCELED`. */
  readonly signal?: AbortSignal | undefined
  /** The relay moves what the source holds at that moment, then ends as after EOF. */
  readonly drain?: AbortSignal | undefined
  /**
   * The pipe ({@link Streams.wholePipe}) behind a source that is no pipe, by default a new one. The relay owns it, and
   * moves its bytes first.
   */
  readonly through?: Fd | undefined
  /** shutdown(2) at the end, so that the peer sees it even if others have the socket open. */
  readonly shutsDown?: boolean | undefined
  readonly keep?: RelayKeep | undefined
  readonly link?: RelayLink | undefined
}

/** What a relay needs to outlive its connection, which is the one of its two sides that is a socket. */
export interface RelayLink {
  /** Where the relay counts, so that the next agent goes on: {@link TOTALS_BYTES} of a file in memory. */
  readonly totals: { readonly fd: Fd; readonly offset: number }
  /** Whether the relay waits for another connection when the device is gone; otherwise it ends. */
  readonly outlivesDevice: boolean
  /** Whether the reader's totals go the other way on the connection ([stdio.md](docs/stdio.md#streams-that-resume)). */
  readonly resumes: boolean
  /** Of an output that resumes: two pipes ({@link Streams.wholePipe}) with its bytes until they are acknowledged, and sent. The relay owns both. */
  readonly kept: { readonly pipe: Fd; readonly sent: Fd } | undefined
  /** Called once the relay runs. */
  started(relay: AttachedRelay): void
  /** The relay has closed its connection, between two bytes, and waits for another. */
  detached(): void
}

/** Bytes delivered, received, acknowledged and sent once, and which of them to trust (native/addon/relay/stream.h). */
export const TOTALS_BYTES = 56

export interface AttachedRelay {
  /** Closes the connection; does nothing without one. */
  detach(): void
  /** Takes over a connection. */
  attach(connection: Fd): void
}

export interface RelayKeep {
  readonly bytes: number
  /** Called once the relay runs. `read` may be called at any time, also after the end. */
  started(read: () => RelayTail): void
}

/** The last bytes of a relay, with those that wait in a pipe. */
export interface RelayTail {
  /** Bytes that were moved or wait. */
  readonly totalBytes: bigint
  readonly last: Buffer
}

export interface RelayResult {
  readonly bytes: bigint
  /** undefined after EOF; `EPIPE` or `ECONNRESET` when the reader is gone; `ECANCELED` after `signal`. */
  readonly errno: string | undefined
}
