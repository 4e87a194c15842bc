import { AgentError } from '../../base/errors.ts'
import type { Clock } from '../../os/clock.ts'
import type { Fd, Streams } from '../../os/streams/streams.ts'
import { DRAIN_MS, type OutputRead, type ProcessInput, type ProcessOutput } from './process-streams.ts'

/** Input that the host sends on a connection of its own; the native relay moves it. */
export class PortInput implements ProcessInput {
  readonly #stop = new AbortController()
  readonly #drain = new AbortController()
  /** Resolves when both descriptors are closed. */
  readonly ended: Promise<void>

  /** Takes both descriptors over; neither when it throws. `fd` is our end of the pipe or pty. */
  constructor(streams: Streams, connection: Fd, fd: Fd) {
    this.ended = over(streams.relay(connection, fd, this.#stop.signal, this.#drain.signal))
  }

  async write(): Promise<void> {
    throw new AgentError('INTERNAL', 'Cannot get writer')
  }

  /** What has arrived by now is still handed on; that may take as long as the process likes, so nobody waits for it. */
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
 * Output that goes to a connection of its own; the native relay moves it. After the process's end what is in the pipe
 * is still delivered, at the reader's pace; whoever else holds the pipe has half a second.
 */
export class PortOutput implements ProcessOutput {
  readonly #clock: Clock
  readonly #stop = new AbortController()
  readonly #drain = new AbortController()
  readonly #over = new AbortController()
  /** Resolves when everything was handed to the connection, or nobody is left to take it; both are closed then. */
  readonly ended: Promise<void>

  /** Takes both descriptors over; neither when it throws. `fd` is our end of the pipe or pty. */
  constructor(os: { readonly streams: Streams; readonly clock: Clock }, fd: Fd, connection: Fd) {
    this.#clock = os.clock
    const relay = os.streams.relay(fd, connection, this.#stop.signal, this.#drain.signal)
    this.ended = over(relay).then(() => this.#over.abort())
  }

  async read(): Promise<OutputRead> {
    throw new AgentError('INTERNAL', 'cannot get stream reader')
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
