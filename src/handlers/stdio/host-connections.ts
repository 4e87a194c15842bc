import { AgentError, errnoOf, messageOf } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import type { Os } from '../../os/os.ts'
import { isPeerAllowed } from '../../os/sockets/allow-list.ts'
import type { HostAddress, HostPeer } from '../../os/sockets/host-sockets.ts'
import type { Fd } from '../../os/streams/streams.ts'
import { type Call, either, type TakenByRequests } from '../../state/request.ts'
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
export interface HostConnections extends TakenByRequests {
  /** Connects a stream with the host's port. Throws INTERNAL, naming both, when there is no connection. */
  connect(wanted: WantedConnection, call: Call): Promise<HostConnection>
  /**
   * Takes over the connections of the previous agent, and opens the listener, if one is configured. To be called once,
   * before requests are answered.
   */
  begin(): Promise<void>
}

/** What a request asks for. */
export interface WantedConnection {
  readonly port: number
  readonly stream: StreamName
}

export interface HostConnection {
  readonly fd: Fd
  /**
   * To be called when the process that gets it is made, or never will be. Until then the next agent gives the connection to
   * the same request again.
   */
  settled(): Promise<void>
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
  return options.config.listenerPort > 0 ? listenForHost(options) : dialHost(options)
}

/** Errors of a dial to a port without a listener: a host answers a vsock dial with a reset, or not at all. */
const NO_LISTENER = ['ECONNRESET', 'ETIMEDOUT', 'ECONNREFUSED', 'ENOENT']

/** What the names of connections that the agent has made begin with in vminit's store; port and call follow. */
const DIALLED = 'to-port-'

/** Makes each connection by dialling the host, which may listen for one only. */
function dialHost({ os, config }: Parameters<typeof createHostConnections>[0]): HostConnections {
  const kept = new KeptConnections(os, DIALLED)
  // Stored before it is connected: the host may accept it in the agent's last moment.
  const newSocket = (port: number, name: string, isKept: boolean) => {
    const fd = os.hostSockets.socket(hostPort(config.dial, port), config.dialTimeoutMs)
    if (isKept) kept.keep(name, fd)
    return fd
  }
  return {
    async connect({ port, stream }, { signal, number }) {
      signal.throwIfAborted()
      const name = `${port.toString(RADIX)}-${number.toString(RADIX)}`
      const fd = kept.take(name) ?? newSocket(port, name, number !== 0n)
      try {
        await dial(os, config, { port, fd }, signal)
        return { fd, settled: () => kept.settled(name) }
      } catch (error) {
        os.streams.close(fd)
        await kept.settled(name)
        if (signal.aborted) throw error
        const errno = errnoOf(error)
        const hasNoListener = errno !== undefined && NO_LISTENER.includes(errno)
        const what = hasNoListener ? 'no listener' : 'no connection'
        const text = `${stream}: port ${port} of the host: ${what}`
        throw new AgentError('INTERNAL', text, { cause: error, ...(errno === undefined ? {} : { errno }) })
      }
    },
    begin: async () => kept.restore(),
    get taken() {
      return kept.names().map((name) => [callIn(name), either(() => kept.drop(name))] as const)
    },
  }
}

/** A name in the store has at most 31 characters. */
const RADIX = 36

function callIn(name: string): bigint {
  const digits = name.slice(name.indexOf('-') + 1)
  return [...digits].reduce((sum, digit) => sum * BigInt(RADIX) + BigInt(Number.parseInt(digit, RADIX)), 0n)
}

async function dial(
  { clock, hostSockets }: Os,
  config: Pick<HostConnectionsConfig, 'dial' | 'dialTimeoutMs'>,
  { port, fd }: { readonly port: number; readonly fd: Fd },
  signal: AbortSignal,
): Promise<void> {
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
    await hostSockets.connect(fd, hostPort(config.dial, port), either)
  } finally {
    done.abort()
  }
}

/** What the names of connections that the host has made begin with in vminit's store; the port follows. */
const ACCEPTED = 'from-port-'

/** The host connects right before the request that names the port. */
const ACCEPTED_AGE_MS = 60_000

/** A request may arrive before the connection that it names. */
const TRIES = 3
const BETWEEN_TRIES_MS = 100

/** Lets the host make the connections, each known by the port it came from. */
function listenForHost(options: {
  readonly os: Os
  readonly log: Logger
  readonly config: HostConnectionsConfig
}): HostConnections {
  const { os, log, config } = options
  const waiting = new KeptConnections(os, ACCEPTED, ACCEPTED_AGE_MS)
  const connection = (fd: Fd, peer: HostPeer) => {
    const port = portOf(peer, config.allowLoopback)
    if (port === undefined) {
      os.streams.close(fd)
      log.debug('connection for a stream refused: not from the host', { peer: JSON.stringify(peer) })
      return
    }
    waiting.add(`${port}`, fd)
    log.debug('connection for a stream waits', { port })
  }
  return {
    connect: (wanted, { signal }) => waitFor(waiting, os, wanted, signal),
    begin: async () => {
      waiting.restore()
      const address = listenerAddress(config.dial, config.listenerPort)
      await os.hostSockets.listen(STORED_LISTENER, address, {
        connection,
        error: (error) => log.error('no stream could be accepted', { error: messageOf(error) }),
      })
    },
    // One that comes from the same port takes its place.
    taken: [],
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

async function waitFor(
  waiting: KeptConnections,
  { clock }: Pick<Os, 'clock'>,
  { port, stream }: WantedConnection,
  signal: AbortSignal,
): Promise<HostConnection> {
  const name = `${port}`
  for (let attempt = 1; ; attempt++) {
    signal.throwIfAborted()
    const fd = waiting.take(name)
    if (fd !== undefined) return { fd, settled: () => waiting.settled(name) }
    if (attempt === TRIES) break
    await clock.sleep(BETWEEN_TRIES_MS, signal)
  }
  throw new AgentError('INTERNAL', `${stream}: the host has made no connection from its port ${port}`)
}

/** More than the streams of all processes that may be about to start. */
const MAX_WAITING = 512

/**
 * Connections that are stored in vminit until the process that gets them is made, by names: those that no request has asked
 * for yet, oldest first, and those that a request has.
 */
class KeptConnections {
  readonly #os: Pick<Os, 'streams' | 'clock' | 'descriptors'>
  readonly #prefix: string
  readonly #maxAgeMs: number | undefined
  readonly #waiting = new Map<string, { readonly fd: Fd; readonly taken: AbortController }>()
  /** The connections that a request has, whose process is not made yet. */
  readonly #unsettled = new Set<string>()

  /** Without `maxAgeMs` they wait until they are dropped. */
  constructor(os: Pick<Os, 'streams' | 'clock' | 'descriptors'>, prefix: string, maxAgeMs?: number) {
    this.#os = os
    this.#prefix = prefix
    this.#maxAgeMs = maxAgeMs
  }

  /**
   * Lets a connection wait for its request, for a limited time. An earlier one of this name is closed, and the oldest when
   * there are too many.
   */
  add(name: string, fd: Fd): void {
    this.drop(name)
    if (this.#unsettled.has(name)) void this.settled(name)
    const [oldest] = this.#waiting.keys()
    if (oldest !== undefined && this.#waiting.size >= MAX_WAITING) this.drop(oldest)
    void this.#os.descriptors.store(`${this.#prefix}${name}`, fd)
    this.#wait(name, fd)
  }

  /** Lets the connections of the previous agent wait. */
  restore(): void {
    const { descriptors } = this.#os
    for (const stored of descriptors.names().filter((one) => one.startsWith(this.#prefix))) {
      const fd = descriptors.take(stored)
      if (fd !== undefined) this.#wait(stored.slice(this.#prefix.length), fd)
    }
  }

  /** The names of those that wait. */
  names(): readonly string[] {
    return [...this.#waiting.keys()]
  }

  /** Gives the request a connection that waits. */
  take(name: string): Fd | undefined {
    const fd = this.#take(name)
    if (fd !== undefined) this.#unsettled.add(name)
    return fd
  }

  /** Keeps a connection that the request has made itself. */
  keep(name: string, fd: Fd): void {
    this.#unsettled.add(name)
    void this.#os.descriptors.store(`${this.#prefix}${name}`, fd)
  }

  /** See {@link HostConnection.settled}. */
  async settled(name: string): Promise<void> {
    if (this.#unsettled.delete(name)) await this.#removeStored(name)
  }

  #wait(name: string, fd: Fd): void {
    const taken = new AbortController()
    this.#waiting.set(name, { fd, taken })
    if (this.#maxAgeMs === undefined) return
    this.#os.clock.sleep(this.#maxAgeMs, taken.signal).then(
      () => this.drop(name),
      () => {},
    )
  }

  /** Closes one that waits. */
  drop(name: string): void {
    const fd = this.#take(name)
    if (fd === undefined) return
    this.#os.streams.close(fd)
    void this.#removeStored(name)
  }

  /** Never rejects: once vminit is gone nothing is stored. */
  async #removeStored(name: string): Promise<void> {
    await this.#os.descriptors.remove(`${this.#prefix}${name}`).catch(() => {})
  }

  #take(name: string): Fd | undefined {
    const entry = this.#waiting.get(name)
    entry?.taken.abort()
    this.#waiting.delete(name)
    return entry?.fd
  }
}
