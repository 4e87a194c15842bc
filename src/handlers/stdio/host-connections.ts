import { AgentError, errnoOf, messageOf } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import type { Os } from '../../os/os.ts'
import { isPeerAllowed } from '../../os/sockets/allow-list.ts'
import type { HostAddress, HostPeer } from '../../os/sockets/host-sockets.ts'
import type { Fd } from '../../os/streams/streams.ts'
import type { StreamName } from './port-connections.ts'

/** Where the host's ports are: on vsock, or, for an agent without a VM, unix sockets in a folder. */
export type StdioDial = { readonly kind: 'vsock' } | { readonly kind: 'unix'; readonly folder: string }

export interface HostConnectionsConfig {
  readonly dial: StdioDial
  /** How long a dial may take. */
  readonly dialTimeoutMs: number
  /** A port of the agent that the host connects to for its streams; 0: the agent dials the host. */
  readonly listenerPort: number
  /** Accepts connections of processes in this guest too, for tests. */
  readonly allowLoopback: boolean
}

/** Connections with the host that carry streams of processes. */
export interface HostConnections {
  /** Connects `stream` with the host's port. Throws INTERNAL, naming both, when there is no connection. */
  connect(port: number, stream: StreamName, signal: AbortSignal): Promise<Fd>
  /**
   * To be called when the process that got the connection of this port is made, or never will be. Until then the next agent
   * gives the connection to the same request again.
   */
  settled(port: number): Promise<void>
  /** Opens the listener, if one is configured. To be called once, before requests are answered. */
  listen(): Promise<void>
}

/** The address of the host's port `port`. */
export function hostPort(dial: StdioDial, port: number): HostAddress {
  return dial.kind === 'vsock'
    ? { kind: 'vsock', port }
    : { kind: 'unix', path: `${dial.folder}/port_${port}` }
}

/** Dials the host, or waits for its connections, as the configuration says. */
export function createHostConnections(options: {
  readonly os: Os
  readonly log: Logger
  readonly config: HostConnectionsConfig
}): HostConnections {
  const { os, config } = options
  if (config.listenerPort > 0) return listenForHost(options)
  return { connect: dialHost(os, config), settled: async () => {}, listen: async () => {} }
}

/** Errors of a dial to a port without a listener: a host answers a vsock dial with a reset, or not at all. */
const NO_LISTENER = ['ECONNRESET', 'ETIMEDOUT', 'ECONNREFUSED', 'ENOENT']

/** Makes each connection by dialling the host. */
function dialHost(
  os: Os,
  config: Pick<HostConnectionsConfig, 'dial' | 'dialTimeoutMs'>,
): HostConnections['connect'] {
  return async (port, stream, signal) => {
    try {
      return await dial(os, config, port, signal)
    } catch (error) {
      if (signal.aborted) throw error
      const errno = errnoOf(error)
      const hasNoListener = errno !== undefined && NO_LISTENER.includes(errno)
      const what = hasNoListener ? 'no listener' : 'no connection'
      const text = `${stream}: port ${port} of the host: ${what}`
      throw new AgentError('INTERNAL', text, { cause: error, ...(errno === undefined ? {} : { errno }) })
    }
  }
}

async function dial(
  { clock, hostSockets }: Os,
  config: Pick<HostConnectionsConfig, 'dial' | 'dialTimeoutMs'>,
  port: number,
  signal: AbortSignal,
): Promise<Fd> {
  const { dialTimeoutMs } = config
  const late = new AbortController()
  const done = new AbortController()
  clock.sleep(dialTimeoutMs, done.signal).then(
    () =>
      late.abort(
        new AgentError('INTERNAL', `no answer within ${dialTimeoutMs / 1000} s`, { errno: 'ETIMEDOUT' }),
      ),
    () => {},
  )
  try {
    const either = AbortSignal.any([signal, late.signal])
    return await hostSockets.connect(hostPort(config.dial, port), dialTimeoutMs, either)
  } finally {
    done.abort()
  }
}

/** More than the streams of all processes that may be about to start. */
const MAX_WAITING = 512
/** The host connects right before the request that names the port. */
const MAX_AGE_MS = 60_000

/** A request may arrive before the connection that it names (behaviour spec, section C.1). */
const TRIES = 3
const BETWEEN_TRIES_MS = 100

/** Lets the host make the connections, each known by the port it came from (behaviour spec, I.12). */
function listenForHost(options: {
  readonly os: Os
  readonly log: Logger
  readonly config: HostConnectionsConfig
}): HostConnections {
  const { os, log, config } = options
  const waiting = new WaitingConnections(os)
  const connection = (fd: Fd, peer: HostPeer) => {
    const port = portOf(peer, config.allowLoopback)
    if (port === undefined) {
      os.streams.close(fd)
      log.debug('connection for a stream refused: not from the host', { peer: JSON.stringify(peer) })
      return
    }
    waiting.add(port, fd)
    log.debug('connection for a stream waits', { port })
  }
  return {
    connect: (port, stream, signal) => waiting.waitFor(port, stream, signal),
    settled: (port) => waiting.settled(port),
    listen: async () => {
      waiting.restore()
      const address = listenerAddress(config.dial, config.listenerPort)
      await os.hostSockets.listen(STORED_LISTENER, address, {
        connection,
        error: (error) => log.error('no stream could be accepted', { error: messageOf(error) }),
      })
    },
  }
}

/** The listening socket in vminit's store. */
const STORED_LISTENER = 'stream-listener'

/** The address of the agent's port `port`, which the host dials. */
export function listenerAddress(dial: StdioDial, port: number): HostAddress {
  return dial.kind === 'vsock'
    ? { kind: 'vsock', port }
    : { kind: 'unix', path: `${dial.folder}/listener_${port}` }
}

/** The port that a connection came from; undefined when it did not come from the host. */
function portOf(peer: HostPeer, allowLoopback: boolean): number | undefined {
  if (peer.kind === 'unix') {
    const digits = /\/port_(\d{1,10})$/.exec(peer.path)?.[1]
    return digits === undefined ? undefined : Number(digits)
  }
  return isPeerAllowed(peer, allowLoopback) ? peer.port : undefined
}

/** The name of a waiting connection in vminit's store; its port follows. */
const STORED_PREFIX = 'from-port-'

/** Connections that no request has named yet, oldest first. Each is stored until the process that gets it is made. */
class WaitingConnections {
  readonly #os: Pick<Os, 'streams' | 'clock' | 'descriptors'>
  readonly #byPort = new Map<number, { readonly fd: Fd; readonly taken: AbortController }>()
  /** The ports of connections that a request has, whose process is not made yet. */
  readonly #unsettled = new Set<number>()

  constructor(os: Pick<Os, 'streams' | 'clock' | 'descriptors'>) {
    this.#os = os
  }

  /**
   * Keeps a connection for at most {@link MAX_AGE_MS}. An earlier one from the same port is closed, and the oldest when
   * there are too many.
   */
  add(port: number, fd: Fd): void {
    this.#drop(port)
    if (this.#unsettled.has(port)) void this.settled(port)
    const [oldest] = this.#byPort.keys()
    if (oldest !== undefined && this.#byPort.size >= MAX_WAITING) this.#drop(oldest)
    this.#os.descriptors.store(`${STORED_PREFIX}${port}`, fd)
    this.#wait(port, fd)
  }

  /** Waits with the connections of the agent before. */
  restore(): void {
    const { descriptors } = this.#os
    for (const name of descriptors.names().filter((one) => one.startsWith(STORED_PREFIX))) {
      const fd = descriptors.take(name)
      if (fd !== undefined) this.#wait(Number(name.slice(STORED_PREFIX.length)), fd)
    }
  }

  async waitFor(port: number, stream: string, signal: AbortSignal): Promise<Fd> {
    for (let attempt = 1; ; attempt++) {
      signal.throwIfAborted()
      const fd = this.#take(port)
      if (fd !== undefined) {
        this.#unsettled.add(port)
        return fd
      }
      if (attempt === TRIES) break
      await this.#os.clock.sleep(BETWEEN_TRIES_MS, signal)
    }
    throw new AgentError('INTERNAL', `${stream}: the host has made no connection from its port ${port}`)
  }

  /** See {@link HostConnections.settled}. */
  async settled(port: number): Promise<void> {
    if (this.#unsettled.delete(port)) await this.#removeStored(port)
  }

  #wait(port: number, fd: Fd): void {
    const taken = new AbortController()
    this.#byPort.set(port, { fd, taken })
    this.#os.clock.sleep(MAX_AGE_MS, taken.signal).then(
      () => this.#drop(port),
      () => {},
    )
  }

  #drop(port: number): void {
    const fd = this.#take(port)
    if (fd === undefined) return
    this.#os.streams.close(fd)
    void this.#removeStored(port)
  }

  /** Never rejects: without vminit nothing is stored. */
  async #removeStored(port: number): Promise<void> {
    await this.#os.descriptors.remove(`${STORED_PREFIX}${port}`).catch(() => {})
  }

  #take(port: number): Fd | undefined {
    const entry = this.#byPort.get(port)
    entry?.taken.abort()
    this.#byPort.delete(port)
    return entry?.fd
  }
}
