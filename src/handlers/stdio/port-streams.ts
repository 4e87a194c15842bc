import { AgentError } from '../../base/errors.ts'
import type { Clock } from '../../os/clock.ts'
import type { Fd, Streams } from '../../os/streams/streams.ts'
import { DRAIN_MS, type OutputRead, type ProcessInput, type ProcessOutput } from './process-streams.ts'

/** Input that the host sends on a connection of its own. The native relay moves the bytes. */
export class PortInput implements ProcessInput {
  readonly #stop = new AbortController()
  readonly #drain = new AbortController()
  /** Resolves when both descriptors are closed. */
  readonly ended: Promise<void>

  /** Takes over both descriptors, or neither when it throws. `fd` is the agent's end of the pipe or pty. */
  constructor(streams: Streams, connection: Fd, fd: Fd) {
    this.ended = over(streams.relay(connection, fd, this.#stop.signal, this.#drain.signal))
  }

  async write(): Promise<void> {
    throw new AgentError('INTERNAL', 'Cannot get writer', { fault: 'caller' })
  }

  /** Delivers what has arrived by now, and resolves at once: the process may take any time to read it. */
  async end(): Promise<void> {
    this.#drain.abort()
  }

  processEnded(): void {
    this.#stop.abort()
  }

  close(): void {
    this.#stop.abort()
  }
}

/**
 * Output that goes to the host on a connection of its own. The native relay moves the bytes. After the process has ended,
 * what is in the pipe is still delivered, at the reader's pace; other processes that hold the pipe open have half a second.
 */
export class PortOutput implements ProcessOutput {
  readonly #clock: Clock
  readonly #stop = new AbortController()
  readonly #drain = new AbortController()
  readonly #over = new AbortController()
  /** Resolves when everything was written to the connection, or its reader is gone. Both descriptors are closed then. */
  readonly ended: Promise<void>

  /** Takes over both descriptors, or neither when it throws. `fd` is the agent's end of the pipe or pty. */
  constructor(os: { readonly streams: Streams; readonly clock: Clock }, fd: Fd, connection: Fd) {
    this.#clock = os.clock
    const relay = os.streams.relay(fd, connection, this.#stop.signal, this.#drain.signal)
    this.ended = over(relay).then(() => this.#over.abort())
  }

  async read(): Promise<OutputRead> {
    throw new AgentError('INTERNAL', 'cannot get stream reader', { fault: 'caller' })
  }

  processEnded(): void {
    this.#clock.sleep(DRAIN_MS, this.#over.signal).then(
      () => this.#drain.abort(),
      () => {},
    )
  }

  close(): void {
    this.#stop.abort()
  }
}

async function over(relay: Promise<unknown>): Promise<void> {
  await relay
}
