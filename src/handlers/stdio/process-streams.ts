import type { StoredBytes } from '../../base/stored-bytes.ts'
import type { Os } from '../../os/os.ts'
import type { Call, Taken, TakenByRequests } from '../../state/request.ts'
import type { OutputReplay, OutputTail } from './output-replay.ts'
import type { PortLinks } from './ports/port-links.ts'

export interface StreamOs extends Pick<Os, 'clock' | 'streams'> {
  /** Keeps the last output of each stream, for ReadOutput. */
  readonly replay?: OutputReplay
  /** Lets streams over ports outlive their connections. */
  readonly ports?: PortLinks
}

interface KeptStream extends TakenByRequests {
  processEnded(): void
  /** Closes at once. Resolves when its descriptors are closed, in vminit too. Never rejects. */
  close(): Promise<void>
}

export interface ProcessInput extends KeptStream {
  /** A request sent again continues where it was. Throws INTERNAL `Cannot get writer` when calls cannot write to it. */
  write(data: Uint8Array | StoredBytes, call: Call): Promise<Taken>
  /** Ends the input after earlier writes; the process then reads the end. May be called again. */
  end(): Promise<void>
}

/**
 * The result of one read, empty at the end of the stream. `delivered` releases its memory; `dropped` makes its bytes
 * unread.
 */
export interface OutputRead extends Taken, StoredBytes {
  /** The same bytes, as a field of ReadStdout's answer. */
  readonly data: Uint8Array
}

export const NO_OUTPUT: OutputRead = {
  length: 0,
  place: undefined,
  data: new Uint8Array(0),
  read: () => new Uint8Array(0),
  delivered: () => {},
  dropped: () => {},
}

export interface ProcessOutput extends KeptStream {
  /** The last output; undefined for a stream that had ended when the previous agent died. */
  readonly tail: OutputTail | undefined
  /**
   * Empty at the end; a request sent again gets the same. INTERNAL `cannot get stream reader`: calls cannot read it.
   */
  read(maxBytes: number, call: Call): Promise<OutputRead>
  /** How long output has waited for a read; 0 when none waits, while a read is open, and on a port. */
  unreadMs(): number
}

/** How long reads wait for output after the process has ended: another process may hold the pipe open for ever. */
export const DRAIN_MS = 500
