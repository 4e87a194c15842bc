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
  /** TIOCSWINSZ of a pty. */
  setWindowSize(fd: Fd, rows: number, columns: number): void
  /**
   * Moves bytes from `source` to `target` on a native thread until EOF, an error or `signal`, without JavaScript and with no
   * buffers but the kernel's. Owns both descriptors and closes them at the end, so that EOF is a full close. When it cannot
   * start, it throws and owns nothing. The promise never rejects. When `drain` fires, the relay moves what the source holds
   * at that moment and then ends as after EOF.
   */
  relay(source: Fd, target: Fd, signal?: AbortSignal, drain?: AbortSignal): Promise<RelayResult>
}

/** How a relay ended. */
export interface RelayResult {
  readonly bytes: bigint
  /** undefined after EOF; `EPIPE` or `ECONNRESET` when the reader is gone; `ECANCELED` after `signal`. */
  readonly errno: string | undefined
}
