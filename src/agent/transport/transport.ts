import type { Socket } from 'node:net'
import { messageOf } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import { isPeerAllowed } from '../../os/sockets/allow-list.ts'
import type { ListenAddress, Sockets } from '../../os/sockets/sockets.ts'
import type { ServedConnection } from '../../rpc/connection.ts'
import type { ReadDescriptors } from '../../rpc/grpc/reflection.ts'
import { type ConnectionTotals, LIMITS, type Totals } from '../../rpc/limits.ts'
import type { CheckCall, MethodTable } from '../../rpc/method.ts'
import { type StartTimer, startTimer } from '../../rpc/timer.ts'
import { TtrpcServerConnection } from '../../rpc/ttrpc/server-connection.ts'
import { type DetectedConnection, ProtocolDetection } from './detect-protocol.ts'

/** The parts that the transport needs. */
export interface TransportOptions {
  readonly sockets: Sockets
  readonly address: ListenAddress
  readonly methods: MethodTable
  /** Reads the descriptor set for server reflection. */
  readonly readDescriptors: ReadDescriptors
  /** Checks the calls that gRPC serves beside the methods. */
  readonly checkCall: CheckCall
  /** What all connections take of the limits. */
  readonly totals: Totals
  readonly log: Logger
  /** Accept processes of this guest over vsock, for tests. */
  readonly allowLoopback?: boolean
  /** For tests. */
  readonly startTimer?: StartTimer
}

/** The agent's open socket and its connections. */
export interface Transport {
  /** The listening port, as chosen by the kernel for TCP port 0; undefined for unix sockets. */
  readonly port: number | undefined
  /**
   * Accepts no more connections and calls. Connections close when their calls are answered, or after 5 s. Resolves when
   * all are closed.
   */
  stop(): Promise<void>
}

const STOP_MS = 5_000

/** Listens at the address and serves both framings on every connection. */
export async function startTransport(options: TransportOptions): Promise<Transport> {
  const connections = new Connections(options)
  const listener = await options.sockets.listen(options.address, (socket) => connections.accept(socket))
  return {
    port: listener.port,
    stop: async () => {
      await listener.close()
      await connections.stop()
    },
  }
}

/** An accepted connection. */
interface OpenConnection {
  readonly totals: ConnectionTotals
  /** Undefined while its framing is unknown or being loaded. */
  served: ServedConnection | undefined
}

class Connections {
  readonly #options: TransportOptions
  readonly #startTimer: StartTimer
  readonly #detection: ProtocolDetection
  readonly #open = new Map<Socket, OpenConnection>()
  #whenEmpty: (() => void) | undefined

  constructor(options: TransportOptions) {
    this.#options = options
    this.#startTimer = options.startTimer ?? startTimer
    this.#detection = new ProtocolDetection({
      headerMs: LIMITS.connection.headerMs,
      startTimer: this.#startTimer,
      detected: (connection) => this.#serve(connection),
      closing: (socket, reason) => this.#logRefusal(socket, reason),
    })
  }

  accept(socket: Socket): void {
    // 'close' follows every error and is handled below.
    socket.on('error', () => {})
    const { sockets, address, allowLoopback } = this.#options
    // The address of a unix or TCP socket itself limits who can connect.
    if (address.kind === 'vsock' && !isPeerAllowed(sockets.peerOf(socket), allowLoopback ?? false)) {
      this.#logRefusal(socket, 'not the host')
      socket.destroy()
      return
    }
    // The end of the client's side ends its calls, so a half-open connection has no use.
    socket.allowHalfOpen = false
    const totals = this.#options.totals.addConnection((reason) => {
      this.#logRefusal(socket, reason)
      socket.destroy()
    })
    if (totals === undefined) {
      this.#logRefusal(socket, 'too many connections')
      socket.destroy()
      return
    }
    this.#open.set(socket, { totals, served: undefined })
    socket.once('close', () => {
      totals.end()
      this.#open.delete(socket)
      if (this.#open.size === 0) this.#whenEmpty?.()
    })
    this.#detection.add(socket)
  }

  async stop(): Promise<void> {
    this.#detection.close()
    for (const [socket, { served }] of this.#open) {
      if (served === undefined) socket.destroy()
      else served.drain()
    }
    if (this.#open.size === 0) return
    const empty = Promise.withResolvers<void>()
    this.#whenEmpty = empty.resolve
    const stopTimer = this.#startTimer(STOP_MS, () => {
      this.#options.log.warn('connections cut at the stop', { count: this.#open.size })
      for (const socket of this.#open.keys()) socket.destroy()
    })
    await empty.promise
    stopTimer()
  }

  #serve(connection: DetectedConnection): void {
    const { socket, framing } = connection
    const open = this.#open.get(socket)
    if (open === undefined) return
    if (framing === 'ttrpc') {
      open.served = this.#serveTtrpc(connection, open.totals)
      return
    }
    this.#serveGrpc(connection, open).catch((error) => {
      this.#options.log.error('cannot serve gRPC', { error: messageOf(error) })
      socket.destroy()
    })
  }

  #serveTtrpc({ socket, firstBytes }: DetectedConnection, totals: ConnectionTotals): ServedConnection {
    const connection = new TtrpcServerConnection(socket, {
      methods: this.#options.methods,
      peer: this.#nameOf(socket),
      startTimer: this.#startTimer,
      totals,
    })
    connection.start(firstBytes)
    return connection
  }

  async #serveGrpc({ socket, firstBytes }: DetectedConnection, open: OpenConnection): Promise<void> {
    socket.pause()
    // Loaded by the first gRPC client, because it would take half of the agent's start-up time, and 10 MB.
    const { serveGrpc } = await import('../../rpc/grpc/server.ts')
    if (socket.destroyed) return
    const { methods, readDescriptors, checkCall } = this.#options
    const { totals } = open
    const peer = this.#nameOf(socket)
    open.served = serveGrpc(socket, { methods, readDescriptors, checkCall, totals, peer, firstBytes })
  }

  /** Logs at debug level, so that a peer cannot fill the console by connecting. */
  #logRefusal(socket: Socket, reason: string): void {
    this.#options.log.debug('connection refused', { peer: this.#nameOf(socket), reason })
  }

  #nameOf(socket: Socket): string {
    const peer = this.#options.sockets.peerOf(socket)
    if (peer !== undefined) return `vsock ${peer.cid}:${peer.port}`
    return socket.remoteAddress === undefined ? 'unix' : `tcp ${socket.remoteAddress} ${socket.remotePort}`
  }
}
