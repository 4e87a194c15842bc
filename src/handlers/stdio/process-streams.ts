import type { Os } from '../../os/os.ts'
import type { Fd } from '../../os/streams/streams.ts'
import type { Call, Taken, TakenByRequests } from '../../state/request.ts'
import type { OutputReplay, OutputTail } from './output-replay.ts'

/** What the streams of a process need. */
export interface StreamOs extends Pick<Os, 'clock' | 'streams'> {
  /** Keeps the last output of each stream, for ReadOutput. */
  readonly replay?: OutputReplay
}

/** A stream as vminit's store keeps it for the next agent. */
interface KeptStream extends TakenByRequests {
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
  write(data: Uint8Array, call: Call): Promise<Taken>
  /** Ends the input after the writes before it; the process then reads the end. May be called again. */
  end(): Promise<void>
}

/** The result of one read of a process's output. Delivered, its memory is given back; dropped, it is unread. */
export interface OutputRead extends Taken {
  /** How many bytes; 0 at the end of the stream. */
  readonly length: number
  /** The file in memory that has them; undefined when it is closed, or they were read. */
  readonly place: { readonly fd: Fd; readonly offset: number } | undefined
  /** The bytes. To be called before it is known what became of the answer. */
  read(): Uint8Array
  /** The same, as ReadStdout answers. */
  readonly data: Uint8Array
}

/** The read of a stream that has ended. */
export const NO_OUTPUT: OutputRead = {
  ...{ length: 0, place: undefined, data: new Uint8Array(0) },
  read: () => new Uint8Array(0),
  delivered: () => {},
  dropped: () => {},
}

/** The agent's side of a process's output. */
export interface ProcessOutput extends KeptStream {
  /** The output that has passed last; undefined for a stream that had ended when the previous agent died. */
  readonly tail: OutputTail | undefined
  /**
   * At most `maxBytes`; empty at the end. A request that had an answer before the agent's death gets the same again.
   * Throws INTERNAL `cannot get stream reader` when there is nothing to read.
   */
  read(maxBytes: number, call: Call): Promise<OutputRead>
  /** For how long no call has read output that waits; 0 where none waits, while a read is open, and on a port. */
  unreadMs(): number
}

/** How long reads wait for output after the process has ended: another process may hold the pipe open for ever. */
export const DRAIN_MS = 500
