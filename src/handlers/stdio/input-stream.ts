import { abortable } from '../../base/abort.ts'
import { AgentError } from '../../base/errors.ts'
import type { Fd, Streams } from '../../os/streams/streams.ts'
import type { ProcessInput } from './process-streams.ts'

/**
 * The agent's end of a process's input (behaviour spec, section C.13). Writes run one after the other, each complete, in the
 * order of the calls; the end comes after the writes before it. Owns its descriptor until it is ended or closed.
 */
export class InputStream implements ProcessInput {
  readonly #streams: Streams
  readonly #fd: Fd
  /** Aborted when the process has ended or the stream is closed: a blocked write ends. */
  readonly #stop = new AbortController()
  #queue: Promise<void> = Promise.resolve()
  #ending: Promise<void> | undefined
  #released = false

  constructor(streams: Streams, fd: Fd) {
    this.#streams = streams
    this.#fd = fd
  }

  /**
   * Resolves when all of `data` is in the pipe. Throws INTERNAL `Cannot get writer` after the end, INTERNAL with
   * errno EPIPE when nobody reads any more, and what `signal` is aborted with; a part may then have been written.
   */
  async write(data: Uint8Array, signal: AbortSignal): Promise<void> {
    if (this.#ending !== undefined || this.#released)
      throw new AgentError('INTERNAL', 'Cannot get writer', { fault: 'caller' })
    signal.throwIfAborted()
    const written = this.#queue.then(() => this.#writeAll(data, signal))
    // The next write runs whatever the outcome of this one, which its own caller gets.
    this.#queue = written.catch(() => {})
    await abortable(written, signal)
  }

  /** Closes the pipe after the writes before it; the process then reads the end. May be called again. */
  end(): Promise<void> {
    this.#ending ??= this.#queue.then(() => this.#release())
    return this.#ending
  }

  /** To be called when the process has ended: a blocked write would never end. */
  processEnded(): void {
    this.#stop.abort()
  }

  /** Closes at once. Pending writes fail. */
  close(): void {
    this.#stop.abort()
    this.#release()
  }

  async #writeAll(data: Uint8Array, signal: AbortSignal): Promise<void> {
    for (let rest = data; rest.length > 0; ) {
      signal.throwIfAborted()
      if (this.#released) throw brokenPipe()
      const count = this.#streams.tryWrite(this.#fd, rest)
      rest = rest.subarray(count)
      if (count === 0) await this.#untilWritable(signal)
    }
  }

  async #untilWritable(signal: AbortSignal): Promise<void> {
    try {
      await this.#streams.writable(this.#fd, AbortSignal.any([signal, this.#stop.signal]))
    } catch (error) {
      if (this.#stop.signal.aborted && !signal.aborted) throw brokenPipe()
      throw error
    }
  }

  #release(): void {
    if (this.#released) return
    this.#released = true
    this.#streams.close(this.#fd)
  }
}

function brokenPipe(): AgentError {
  return new AgentError('INTERNAL', 'write stdin: EPIPE: the process has ended', { errno: 'EPIPE' })
}
