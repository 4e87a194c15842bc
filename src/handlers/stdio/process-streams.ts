/** Our side of a process's input. */
export interface ProcessInput {
  /** Resolves when all of `data` is on its way. Throws INTERNAL `Cannot get writer` when there is nothing to write to. */
  write(data: Uint8Array, signal: AbortSignal): Promise<void>
  /** Lets the process read the end once what came before is through. May be called again. */
  end(): Promise<void>
  /** To be called when the process has ended. */
  processEnded(): void
  /** Closes at once. */
  close(): void
}

/** What one read of a process's output gave. */
export interface OutputRead {
  /** Empty at the end of the stream. */
  readonly data: Uint8Array
  /** To be called when nobody got it: the next read gives it again, in its place. */
  unread(): void
}

/** Our side of a process's output. */
export interface ProcessOutput {
  /** At most `maxBytes`; empty at the end. Throws INTERNAL `cannot get stream reader` when there is nothing to read. */
  read(maxBytes: number, signal: AbortSignal): Promise<OutputRead>
  /** To be called when the process has ended. */
  processEnded(): void
  /** Ends it at once. */
  close(): void
}

/** How long output is waited for after the end of its process: somebody else may keep the pipe open for ever. */
export const DRAIN_MS = 500
