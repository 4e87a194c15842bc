import type { Os } from '../../os/os.ts'
import type { Fd } from '../../os/streams/streams.ts'
import type { OutputReplay, OutputTail } from './output-replay.ts'

/** What the streams of a process need. */
export interface StreamOs extends Pick<Os, 'clock' | 'streams'> {
  /** Keeps the last output of each stream, for ReadOutput. */
  readonly replay?: OutputReplay
}

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

/** The result of one read of a process's output. {@link discard} or {@link unread} is to be called, once. */
export interface OutputRead {
  /** How many bytes; 0 at the end of the stream. */
  readonly length: number
  /** The file in memory that has them; undefined when it is closed, or they were read. */
  readonly place: { readonly fd: Fd; readonly offset: number } | undefined
  /** The bytes. To be called before one of the others. */
  read(): Uint8Array
  /** Gives the data's memory back. To be called when the answer was delivered. */
  discard(): void
  /** Returns the data to the front of the stream. To be called when the answer was not delivered. */
  unread(): void
}

/** The agent's side of a process's output. */
export interface ProcessOutput extends KeptStream {
  /** The output that has passed last; undefined for a stream that had ended when the agent before died. */
  readonly tail: OutputTail | undefined
  /**
   * At most `maxBytes`; empty at the end. A request that had an answer before the agent's death gets the same again.
   * Throws INTERNAL `cannot get stream reader` when there is nothing to read.
   */
  read(maxBytes: number, signal: AbortSignal, number?: bigint): Promise<OutputRead>
  /** For how long no call has read output that waits; 0 where none waits, while a read is open, and on a port. */
  unreadMs(): number
}

/** How long reads wait for output after the process has ended: another process may hold the pipe open for ever. */
export const DRAIN_MS = 500
