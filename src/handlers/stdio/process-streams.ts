/** The agent's side of a process's input. */
export interface ProcessInput {
  /** Resolves when all of `data` is written. Throws INTERNAL `Cannot get writer` when there is nothing to write to. */
  write(data: Uint8Array, signal: AbortSignal): Promise<void>
  /** Ends the input after the writes before it. May be called again. */
  end(): Promise<void>
  /** To be called when the process has ended. */
  processEnded(): void
  /** Closes at once. */
  close(): void
}

/** The result of one read of a process's output. */
export interface OutputRead {
  /** Empty at the end of the stream. */
  readonly data: Uint8Array
  /** Returns the data to the front of the stream. To be called when the answer was not delivered. */
  unread(): void
}

/** The agent's side of a process's output. */
export interface ProcessOutput {
  /** At most `maxBytes`; empty at the end. Throws INTERNAL `cannot get stream reader` when there is nothing to read. */
  read(maxBytes: number, signal: AbortSignal): Promise<OutputRead>
  /** To be called when the process has ended. */
  processEnded(): void
  /** Ends it at once. */
  close(): void
}

/** How long reads wait for output after the process has ended: another process may hold the pipe open for ever. */
export const DRAIN_MS = 500
