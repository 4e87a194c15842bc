import type { Fd } from '../../os/streams/streams.ts'

/**
 * A stream as vminit's store keeps it for the next agent. `number` of a read or write is that of its request, undefined
 * where the request is not sent again to a next agent.
 */
interface KeptStream {
  /** The requests that had taken or brought something when the agent before died. */
  readonly numbers: readonly bigint[]
  /** To be called for each of {@link numbers} that is not sent again: what became of its answer. */
  settled(number: bigint, outcome: 'written' | 'dropped'): void
  /** To be called when the process has ended. */
  processEnded(): void
  /** Closes at once. Resolves when nothing is open any more, in vminit either; never rejects. */
  close(): Promise<void>
}

/** The agent's side of a process's input. */
export interface ProcessInput extends KeptStream {
  /**
   * Resolves when all of `data` is written. A request that was begun before the agent's death goes on where it was.
   * Throws INTERNAL `Cannot get writer` when there is nothing to write to.
   */
  write(data: Uint8Array, signal: AbortSignal, number?: bigint): Promise<InputWrite>
  /** Ends the input after the writes before it; the process then reads the end. May be called again. */
  end(): Promise<void>
}

/** The result of one write of a process's input. */
export interface InputWrite {
  /** Forgets the request. To be called when its answer was delivered, or never will be. */
  settle(): void
}

/** Output in a file in memory that outlives the agent. */
export interface StoredOutput {
  readonly length: number
  /** Undefined once the file is closed; {@link read} returns the bytes also then. */
  readonly place: { readonly fd: Fd; readonly offset: number } | undefined
  read(): Uint8Array
}

/** The result of one read of a process's output. One of its functions is to be called, once. */
export interface OutputRead {
  /** Empty at the end of the stream. To be read before one of the functions is called. */
  readonly data: Uint8Array
  /** The data where they are, if they need not be read. */
  readonly stored?: StoredOutput | undefined
  /** Gives the data's memory back. To be called when the answer was delivered. */
  discard(): void
  /** Returns the data to the front of the stream. To be called when the answer was not delivered. */
  unread(): void
}

/** The agent's side of a process's output. */
export interface ProcessOutput extends KeptStream {
  /**
   * At most `maxBytes`; empty at the end. A request that had an answer before the agent's death gets the same again.
   * Throws INTERNAL `cannot get stream reader` when there is nothing to read.
   */
  read(maxBytes: number, signal: AbortSignal, number?: bigint): Promise<OutputRead>
}

/** How long reads wait for output after the process has ended: another process may hold the pipe open for ever. */
export const DRAIN_MS = 500
