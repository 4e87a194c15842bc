/** An open file descriptor of this process; whoever opened it closes it. */
export type Fd = number

/** Pipes, ptys and fifos: readiness on the loop, then one non-blocking system call. */
export interface Streams {
  /** pipe2(O_CLOEXEC); `sizeBytes` > 0 sets F_SETPIPE_SZ. `parentEnd` is the non-blocking end, `childEnd` the blocking one for a child. */
  pipe(
    direction: 'child-writes' | 'child-reads',
    sizeBytes?: number,
  ): { readonly parentEnd: Fd; readonly childEnd: Fd }
  /** Waits that are pending on `fd` are rejected with EBADF. */
  close(fd: Fd): void
  /** Another descriptor (O_CLOEXEC) of the same open file. */
  duplicate(fd: Fd): Fd
  /** Lets a pipe hold at least `sizeBytes`. Answers whether the kernel allows it; a pty is never resized. */
  growPipe(fd: Fd, sizeBytes: number): boolean
  /** Resolves when a read would not block (data, EOF or error). */
  readable(fd: Fd, signal?: AbortSignal): Promise<void>
  /** Resolves when a write would not block. */
  writable(fd: Fd, signal?: AbortSignal): Promise<void>
  /** One read(2): the bytes, empty at EOF (EIO of a pty is EOF too), undefined when it would block. */
  tryRead(fd: Fd, maxBytes: number): Buffer | undefined
  /** One write(2): how many bytes, 0 when it would block. Throws EPIPE when no reader is left. */
  tryWrite(fd: Fd, data: Uint8Array): number
  setWindowSize(fd: Fd, rows: number, columns: number): void
  /**
   * Moves bytes from `source` to `target` on a native thread until EOF, an error or `signal`, with no JavaScript in
   * between and no buffering but the kernel's. Takes both over and closes them at the end, so that EOF is a full
   * close; throws, and takes nothing, when it cannot begin. The promise never rejects. When `drain` fires, what the
   * source holds by then (at most as much as it can hold) is still moved, then it ends as after EOF.
   */
  relay(source: Fd, target: Fd, signal?: AbortSignal, drain?: AbortSignal): Promise<RelayResult>
}

/** How a relay ended. */
export interface RelayResult {
  readonly bytes: bigint
  /** undefined after EOF; `EPIPE` or `ECONNRESET` when the reader went away; `ECANCELED` when it was stopped. */
  readonly errno: string | undefined
}
