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
  /** Resolves when a write would not block. */
  writable(fd: Fd, signal?: AbortSignal): Promise<void>
  /** One read(2). Returns the bytes, empty at EOF (also for EIO of a pty), or undefined when it would block. */
  tryRead(fd: Fd, maxBytes: number): Buffer | undefined
  /** One write(2). Returns the number of bytes, 0 when it would block. Throws EPIPE when no reader is left. */
  tryWrite(fd: Fd, data: Uint8Array): number
  /** A file in memory (memfd_create(2)), empty. Its position is that of all its duplicates, in other processes too. */
  memoryFile(name: string): Fd
  /** Both ends of a new pipe, non-blocking, as one descriptor: it never ends, and never lacks a reader. */
  wholePipe(): Fd
  /** How many bytes a pipe holds that were not read yet. */
  pipedBytes(fd: Fd): number
  /**
   * One splice(2), between a pipe and anything: moves bytes, and the position of a file in memory, in a single call, so
   * that a kill loses and repeats none. Returns the number of bytes, 0 at EOF (also for EIO of a pty), or undefined when
   * one of the two would block. Throws EPIPE when the target has no reader.
   */
  move(source: Fd, target: Fd, maxBytes: number): number | undefined
  /** One pread(2) of a file in memory. */
  readAt(fd: Fd, offset: number, maxBytes: number): Buffer
  /** Writes all of `data` to a file in memory (pwrite(2)); its position stays. Less than 4 KiB in a page are written whole or not at all. */
  writeAt(fd: Fd, offset: number, data: Uint8Array): void
  /** The position of a file in memory. */
  position(fd: Fd): number
  setPosition(fd: Fd, offset: number): void
  /** Ends a file in memory at `sizeBytes`. Pages that a pipe took from it by {@link move} stay as they are. */
  truncate(fd: Fd, sizeBytes: number): void
  /** Gives the memory of a part of a file back; its bytes become zeros. */
  punchHole(fd: Fd, offset: number, bytes: number): void
  /** TIOCSWINSZ of a pty. */
  setWindowSize(fd: Fd, rows: number, columns: number): void
  /**
   * Moves bytes from `source` to `target` on a native thread until EOF, an error or a signal, without JavaScript and with no
   * buffers but the kernel's. Owns the descriptors and closes them at the end, so that EOF is a full close. When it cannot
   * start, it throws and owns nothing. The promise never rejects.
   */
  relay(source: Fd, target: Fd, options?: RelayOptions): Promise<RelayResult>
  /** The bytes that all relays have moved so far. */
  relayedBytes(): bigint
}

/** How a relay begins and ends. */
export interface RelayOptions {
  /** Ends it with `ECANCELED`. */
  readonly signal?: AbortSignal | undefined
  /** When it fires, the relay moves what the source holds at that moment and then ends as after EOF. */
  readonly drain?: AbortSignal | undefined
  /**
   * A pipe ({@link Streams.wholePipe}) that bytes from a source that is no pipe pass; the relay owns it. What it holds
   * already is moved first. Without it such a relay makes one.
   */
  readonly through?: Fd | undefined
  /** At the end shuts a connection down, whoever else has it open: its peer sees the end. */
  readonly shutsDown?: boolean | undefined
  /** Keeps the last bytes of the source. */
  readonly keep?: RelayKeep | undefined
}

/** What a relay keeps of its bytes, and who reads it. */
export interface RelayKeep {
  /** How many bytes at most. */
  readonly bytes: number
  /** Called once the relay runs. `read` may be called at any time, also after the end. */
  started(read: () => RelayTail): void
}

/** The last bytes of a relay, those included that wait in the pipe of its source, or in the one that bytes pass. */
export interface RelayTail {
  /** How many bytes it has moved so far, and how many wait. */
  readonly totalBytes: bigint
  readonly last: Buffer
}

/** How a relay ended. */
export interface RelayResult {
  readonly bytes: bigint
  /** undefined after EOF; `EPIPE` or `ECONNRESET` when the reader is gone; `ECANCELED` after `signal`. */
  readonly errno: string | undefined
}
