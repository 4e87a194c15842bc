import type { Socket } from 'node:net'
import { messageOf } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import { isPeerAllowed } from '../../os/sockets/allow-list.ts'
import type { ListenAddress, Sockets } from '../../os/sockets/sockets.ts'
import type { ServedConnection } from '../../rpc/connection.ts'
import type { ReadDescriptors } from '../../rpc/grpc/reflection.ts'
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

/** How many connections may wait for protocol detection: spare ones of a host, or ones of a peer that sends nothing. */
const MAX_UNDETECTED = 256
/** The time for the preface of HTTP/2, or for the first frame header of ttRPC. */
const HEADER_MS = 10_000
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

class Connections {
  readonly #options: TransportOptions
  readonly #startTimer: StartTimer
  readonly #detection: ProtocolDetection
  /** Every accepted connection; undefined while its framing is unknown or being loaded. */
  readonly #open = new Map<Socket, ServedConnection | undefined>()
  #whenEmpty: (() => void) | undefined

  constructor(options: TransportOptions) {
    this.#options = options
    this.#startTimer = options.startTimer ?? startTimer
    this.#detection = new ProtocolDetection({
      limit: MAX_UNDETECTED,
      headerMs: HEADER_MS,
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
    this.#open.set(socket, undefined)
    socket.once('close', () => {
      this.#open.delete(socket)
      if (this.#open.size === 0) this.#whenEmpty?.()
    })
    this.#detection.add(socket)
  }

  async stop(): Promise<void> {
    this.#detection.close()
    for (const [socket, served] of this.#open) {
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
    if (framing === 'ttrpc') {
      this.#open.set(socket, this.#serveTtrpc(connection))
      return
    }
    this.#serveGrpc(connection).catch((error) => {
      this.#options.log.error('cannot serve gRPC', { error: messageOf(error) })
      socket.destroy()
    })
  }

  #serveTtrpc({ socket, firstBytes }: DetectedConnection): ServedConnection {
    const connection = new TtrpcServerConnection(socket, {
      methods: this.#options.methods,
      peer: this.#nameOf(socket),
      startTimer: this.#startTimer,
    })
    connection.start(firstBytes)
    return connection
  }

  async #serveGrpc({ socket, firstBytes }: DetectedConnection): Promise<void> {
    socket.pause()
    // Loaded by the first gRPC client, because it would take half of the agent's start-up time, and 10 MB.
    const { serveGrpc } = await import('../../rpc/grpc/server.ts')
    if (socket.destroyed) return
    const { methods, readDescriptors, checkCall } = this.#options
    this.#open.set(
      socket,
      serveGrpc(socket, { methods, readDescriptors, checkCall, peer: this.#nameOf(socket), firstBytes }),
    )
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
