import { AgentError, messageOf } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import type { Clock } from '../../os/clock.ts'
import type { Os } from '../../os/os.ts'
import { isPeerAllowed } from '../../os/sockets/allow-list.ts'
import type { HostAddress, HostPeer } from '../../os/sockets/host-sockets.ts'
import type { Fd, Streams } from '../../os/streams/streams.ts'
import type { HostStreams, HostStreamsConfig } from './host-streams.ts'

/** More than the streams of all processes that may be about to start. */
const MAX_WAITING = 512
/** A connection is made right before the request that names it. */
const MAX_AGE_MS = 60_000

/** A request may overtake the connection it names (behaviour spec, section C.1). */
const TRIES = 3
const BETWEEN_TRIES_MS = 100

/** Lets the host make the connections; each is found by the port it came from (behaviour spec, I.12). */
export function listenForHost(options: {
  readonly os: Os
  readonly log: Logger
  readonly config: HostStreamsConfig
}): HostStreams {
  const { os, log, config } = options
  const waiting = new WaitingConnections(os)
  const connection = (fd: Fd, peer: HostPeer) => {
    const port = portOf(peer, config.allowLoopback)
    if (port === undefined) {
      os.streams.close(fd)
      log.debug('connection for a stream refused: not of the host', { peer: JSON.stringify(peer) })
      return
    }
    waiting.add(port, fd)
    log.debug('connection for a stream waits', { port })
  }
  return {
    connect: (port, stream, signal) => waiting.claim(port, stream, signal),
    listen: async () => {
      await os.hostSockets.listen(listenerAddress(config), {
        connection,
        error: (error) => log.error('no stream could be accepted', { error: messageOf(error) }),
      })
    },
  }
}

function listenerAddress({ dial, listenerPort }: HostStreamsConfig): HostAddress {
  return dial.kind === 'vsock'
    ? { kind: 'vsock', port: listenerPort }
    : { kind: 'unix', path: `${dial.folder}/listener_${listenerPort}` }
}

/** The port that a connection came from; undefined when it did not come from the host. */
function portOf(peer: HostPeer, allowLoopback: boolean): number | undefined {
  if (peer.kind === 'unix') {
    const digits = /\/port_(\d{1,10})$/.exec(peer.path)?.[1]
    return digits === undefined ? undefined : Number(digits)
  }
  return isPeerAllowed(peer, allowLoopback) ? peer.port : undefined
}

/** Connections that no request has named yet, the oldest first. */
class WaitingConnections {
  readonly #streams: Streams
  readonly #clock: Clock
  readonly #byPort = new Map<number, { readonly fd: Fd; readonly taken: AbortController }>()

  constructor(os: { readonly streams: Streams; readonly clock: Clock }) {
    this.#streams = os.streams
    this.#clock = os.clock
  }

  /** Keeps a connection for a while. An earlier one from the same port, or the oldest of too many, is closed. */
  add(port: number, fd: Fd): void {
    this.#drop(port)
    const [oldest] = this.#byPort.keys()
    if (oldest !== undefined && this.#byPort.size >= MAX_WAITING) this.#drop(oldest)
    const taken = new AbortController()
    this.#byPort.set(port, { fd, taken })
    this.#clock.sleep(MAX_AGE_MS, taken.signal).then(
      () => this.#drop(port),
      () => {},
    )
  }

  async claim(port: number, stream: string, signal: AbortSignal): Promise<Fd> {
    for (let attempt = 1; ; attempt++) {
      signal.throwIfAborted()
      const fd = this.#take(port)
      if (fd !== undefined) return fd
      if (attempt === TRIES) break
      await this.#clock.sleep(BETWEEN_TRIES_MS, signal)
    }
    throw new AgentError('INTERNAL', `${stream}: the host has made no connection from its port ${port}`)
  }

  #drop(port: number): void {
    const fd = this.#take(port)
    if (fd !== undefined) this.#streams.close(fd)
  }

  #take(port: number): Fd | undefined {
    const entry = this.#byPort.get(port)
    entry?.taken.abort()
    this.#byPort.delete(port)
    return entry?.fd
  }
}
