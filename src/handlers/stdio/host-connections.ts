import { Changes } from '../../base/changes.ts'
import { AgentError, errnoOf, messageOf } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import type { Os } from '../../os/os.ts'
import { isPeerAllowed } from '../../os/sockets/allow-list.ts'
import type { HostAddress, HostPeer } from '../../os/sockets/host-sockets.ts'
import type { Fd } from '../../os/streams/streams.ts'
import { type Call, either, type TakenByRequests } from '../../state/request.ts'
import type { StreamName } from './port-connections.ts'
import { NAME_BYTES, OPENING_BYTES } from './ports/resumed-stream.ts'

/** The host's ports: vsock, or, for an agent without a VM, unix sockets in a folder. */
export type StdioDial = { readonly kind: 'vsock' } | { readonly kind: 'unix'; readonly folder: string }

export interface HostConnectionsConfig {
  readonly dial: StdioDial
  readonly dialTimeoutMs: number
  /** The agent's port to which the host connects its streams; 0: the agent dials the host. */
  readonly listenerPort: number
  /** Accepts connections of processes in this guest too, for tests. */
  readonly allowLoopback: boolean
  /** Whether a connection of the host may begin with the name of the stream that goes on over it. */
  readonly resumes: boolean
}

export interface HostConnections extends TakenByRequests {
  /** Otherwise the host makes the connections. */
  readonly dialsHost: boolean
  /** Throws INTERNAL, naming stream and port, when there is no connection. */
  connect(wanted: WantedConnection, call: Call): Promise<HostConnection>
  /** Of connections that the host has made, or named. */
  readonly arrivals?: Changes
  /** Whether a connection waits that the host has named. */
  hasNamed?(name: Uint8Array): boolean
  /** Restores the previous agent's connections and opens the listener. Call it once, before requests are answered. */
  begin(): Promise<void>
}

export interface WantedConnection {
  readonly port: number
  readonly stream: StreamName
  /** For a stream that has had a connection: one that a dead agent has made, and what stores a new one before it is used. */
  readonly again?: {
    readonly made: Fd | undefined
    readonly name: Uint8Array
    /** Whether the port tells which connection of the host it is; otherwise only the name does. */
    readonly isByPort: boolean
    keep(fd: Fd): void
  }
}

export interface HostConnection {
  readonly fd: Fd
  /** Where it comes from, when the host has named its stream. */
  readonly namedFrom?: number
  /** Call it once the process is made or never will be. Until then, a request sent again gets the same connection. */
  settled(): Promise<void>
}

export function hostPort(dial: StdioDial, port: number): HostAddress {
  return dial.kind === 'vsock'
    ? { kind: 'vsock', port }
    : { kind: 'unix', path: `${dial.folder}/port_${port}` }
}

export function createHostConnections(options: {
  readonly os: Os
  readonly log: Logger
  readonly config: HostConnectionsConfig
}): HostConnections {
  return options.config.listenerPort > 0 ? listenForHost(options) : dialHost(options)
}

/** Errors of a dial to a port without a listener: a host answers a vsock dial with a reset, or not at all. */
const NO_LISTENER = ['ECONNRESET', 'ETIMEDOUT', 'ECONNREFUSED', 'ENOENT']

/** The prefix of dialled connections in vminit's store; port and call number follow. */
const DIALLED = 'to-port-'

/** Keeps each socket, for a host may accept only once per port. */
function dialHost({ os, config }: Parameters<typeof createHostConnections>[0]): HostConnections {
  const kept = new KeptConnections(os, DIALLED)
  // Store the socket before connecting it: the host may accept it just before this agent dies.
  const newSocket = (port: number, name: string, isKept: boolean) => {
    const fd = os.hostSockets.socket(hostPort(config.dial, port), config.dialTimeoutMs)
    if (isKept) kept.keep(name, fd)
    return fd
  }
  return {
    dialsHost: true,
    async connect({ port, stream, again }, { signal, number }) {
      signal.throwIfAborted()
      const name = `${port.toString(RADIX)}-${number.toString(RADIX)}`
      const fd = again?.made ?? kept.take(name) ?? newSocket(port, name, number !== 0n)
      again?.keep(fd)
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

/** The prefix of accepted connections in vminit's store; the port follows. */
const ACCEPTED = 'from-port-'

/** The host connects right before the request that names the port. */
const ACCEPTED_AGE_MS = 60_000

/** A request may arrive before the connection that it names. */
const TRIES = 3
const BETWEEN_TRIES_MS = 100

/** The host makes the connections; the source port identifies each one. */
function listenForHost(options: {
  readonly os: Os
  readonly log: Logger
  readonly config: HostConnectionsConfig
}): HostConnections {
  const { os, log, config } = options
  const arrivals = new Changes()
  const arrived = config.resumes
    ? (port: string, fd: Fd, taken: AbortSignal) => void named(port, fd, taken)
    : undefined
  const waiting = new KeptConnections(os, ACCEPTED, ACCEPTED_AGE_MS, arrived)
  const named = async (port: string, fd: Fd, taken: AbortSignal) => {
    try {
      const name = await readName(os, fd, taken)
      taken.throwIfAborted()
      waiting.nameOf(port, name)
      arrivals.announce()
      log.debug('connection for a stream has its name', { port })
    } catch (error) {
      // It was taken, or was closed with less than a name, which only its port can tell.
      if (!taken.aborted) log.debug('connection for a stream has no name', { port, error: messageOf(error) })
    }
  }
  const connection = (fd: Fd, peer: HostPeer) => {
    const port = portOf(peer, config.allowLoopback)
    if (port === undefined) {
      os.streams.close(fd)
      log.debug('connection for a stream refused: not from the host', { peer: JSON.stringify(peer) })
      return
    }
    waiting.add(`${port}`, fd)
    arrivals.announce()
    log.debug('connection for a stream waits', { port })
  }
  return {
    dialsHost: false,
    arrivals,
    hasNamed: (name) => waiting.named(name) !== undefined,
    connect: (wanted, { signal }) => waitFor(waiting, os, wanted, signal),
    begin: async () => {
      waiting.restore()
      const address = listenerAddress(config.dial, config.listenerPort)
      await os.hostSockets.listen(STORED_LISTENER, address, {
        connection,
        error: (error) => log.error('stream not accepted', { error: messageOf(error) }),
      })
    },
    // Nothing to close: a new connection from the same port replaces a stale one.
    taken: [],
  }
}

const STORED_LISTENER = 'stream-listener'

export function listenerAddress(dial: StdioDial, port: number): HostAddress {
  return dial.kind === 'vsock'
    ? { kind: 'vsock', port }
    : { kind: 'unix', path: `${dial.folder}/listener_${port}` }
}

/** Undefined when the connection did not come from the host. */
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
  { port, stream, again }: WantedConnection,
  signal: AbortSignal,
): Promise<HostConnection> {
  if (again?.made !== undefined) return { fd: again.made, settled: async () => {} }
  for (let attempt = 1; ; attempt++) {
    signal.throwIfAborted()
    const from = again === undefined ? undefined : waiting.named(again.name)
    const name = from ?? (again?.isByPort === false ? '' : `${port}`)
    const fd = waiting.take(name)
    if (fd !== undefined) {
      const settled = () => waiting.settled(name)
      return from === undefined ? { fd, settled } : { fd, settled, namedFrom: Number(from) }
    }
    // A lost stream waits for arrivals, and takes no place of the streams that connect.
    if (attempt === TRIES || again !== undefined) break
    await clock.sleep(BETWEEN_TRIES_MS, signal)
  }
  throw new AgentError('INTERNAL', `${stream}: the host has made no connection from its port ${port}`)
}

/** Leaves the bytes in the connection, so that the next agent finds them. */
async function readName(
  { streams, clock }: Pick<Os, 'streams' | 'clock'>,
  fd: Fd,
  taken: AbortSignal,
): Promise<string> {
  for (;;) {
    await streams.readable(fd, taken)
    const opening = streams.peek(fd, OPENING_BYTES)
    if (opening?.length === OPENING_BYTES) return hex(opening.subarray(0, NAME_BYTES))
    if (opening?.length === 0) throw new Error('it has ended')
    await clock.sleep(BETWEEN_TRIES_MS, taken)
  }
}

function hex(name: Uint8Array): string {
  return Buffer.from(name).toString('hex')
}

/** More than the streams of all processes that can start at once. */
const MAX_WAITING = 512

/** Connections that vminit stores until their processes are made; they wait, oldest first, for their requests. */
class KeptConnections {
  readonly #os: Pick<Os, 'streams' | 'clock' | 'descriptors'>
  readonly #prefix: string
  readonly #maxAgeMs: number | undefined
  readonly #arrived: ((name: string, fd: Fd, taken: AbortSignal) => void) | undefined
  readonly #waiting = new Map<string, { readonly fd: Fd; readonly taken: AbortController }>()
  /** Of those that wait, by the names of their streams. */
  readonly #named = new Map<string, string>()
  /** Taken by a request whose process is not made yet. */
  readonly #unsettled = new Set<string>()

  /** Without `maxAgeMs`, connections wait until they are dropped. `arrived` is told those that wait, while they do. */
  constructor(
    os: Pick<Os, 'streams' | 'clock' | 'descriptors'>,
    prefix: string,
    maxAgeMs?: number,
    arrived?: (name: string, fd: Fd, taken: AbortSignal) => void,
  ) {
    this.#os = os
    this.#prefix = prefix
    this.#maxAgeMs = maxAgeMs
    this.#arrived = arrived
  }

  /** Closes an earlier connection for the same stream. */
  nameOf(name: string, stream: string): void {
    const before = this.#named.get(stream)
    if (before !== undefined && before !== name) this.drop(before)
    this.#named.set(stream, name)
  }

  named(stream: Uint8Array): string | undefined {
    return this.#named.get(hex(stream))
  }

  /** Closes an earlier connection of this name, and the oldest one when too many wait. */
  add(name: string, fd: Fd): void {
    this.drop(name)
    if (this.#unsettled.has(name)) void this.settled(name)
    const [oldest] = this.#waiting.keys()
    if (oldest !== undefined && this.#waiting.size >= MAX_WAITING) this.drop(oldest)
    void this.#os.descriptors.store(`${this.#prefix}${name}`, fd)
    this.#wait(name, fd)
  }

  restore(): void {
    const { descriptors } = this.#os
    for (const stored of descriptors.names().filter((one) => one.startsWith(this.#prefix))) {
      const fd = descriptors.take(stored)
      if (fd !== undefined) this.#wait(stored.slice(this.#prefix.length), fd)
    }
  }

  names(): readonly string[] {
    return [...this.#waiting.keys()]
  }

  take(name: string): Fd | undefined {
    const fd = this.#take(name)
    if (fd !== undefined) this.#unsettled.add(name)
    return fd
  }

  keep(name: string, fd: Fd): void {
    this.#unsettled.add(name)
    void this.#os.descriptors.store(`${this.#prefix}${name}`, fd)
  }

  async settled(name: string): Promise<void> {
    if (this.#unsettled.delete(name)) await this.#removeStored(name)
  }

  #wait(name: string, fd: Fd): void {
    const taken = new AbortController()
    this.#waiting.set(name, { fd, taken })
    this.#arrived?.(name, fd, taken.signal)
    if (this.#maxAgeMs === undefined) return
    this.#os.clock.sleep(this.#maxAgeMs, taken.signal).then(
      () => this.drop(name),
      () => {},
    )
  }

  drop(name: string): void {
    const fd = this.#take(name)
    if (fd === undefined) return
    this.#os.streams.close(fd)
    void this.#removeStored(name)
  }

  /** Never rejects: without vminit, nothing is stored. */
  async #removeStored(name: string): Promise<void> {
    await this.#os.descriptors.remove(`${this.#prefix}${name}`).catch(() => {})
  }

  #take(name: string): Fd | undefined {
    const entry = this.#waiting.get(name)
    entry?.taken.abort()
    this.#waiting.delete(name)
    for (const [stream, from] of this.#named) if (from === name) this.#named.delete(stream)
    return entry?.fd
  }
}
