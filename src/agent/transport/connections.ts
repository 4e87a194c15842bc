import type { Socket } from 'node:net'
import { messageOf } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import type { ServedConnection } from '../../rpc/connection.ts'
import type { ReadDescriptors } from '../../rpc/grpc/reflection.ts'
import type { ConnectionTotals, Totals } from '../../rpc/limits.ts'
import type { CheckCall, MethodTable, StreamTable } from '../../rpc/method.ts'
import type { StartTimer } from '../../rpc/timer.ts'
import type { BrokerLink, SendNow } from '../../rpc/ttrpc/broker-framing.ts'
import { TtrpcServerConnection } from '../../rpc/ttrpc/server-connection.ts'

/** What connections are served with. */
export interface ConnectionsOptions {
  readonly methods: MethodTable
  /** The methods that answer with streams, over gRPC. */
  readonly streams?: StreamTable
  /** Reads the descriptor set for server reflection. */
  readonly readDescriptors: ReadDescriptors
  /** Checks the calls that gRPC serves beside the methods. */
  readonly checkCall: CheckCall
  /** What all connections take of the limits. */
  readonly totals: Totals
  readonly log: Logger
  readonly startTimer: StartTimer
  /** The broker, which has the connections of ttRPC. */
  readonly link: BrokerLink
}

const STOP_MS = 5_000

/** An open connection. */
interface OpenConnection {
  readonly peer: string
  readonly totals: ConnectionTotals
  /** Undefined while its framing is being loaded. */
  served: ServedConnection | undefined
}

/** The connections of clients, and what they take of the limits. */
export class Connections {
  readonly #options: ConnectionsOptions
  readonly #open = new Map<Socket, OpenConnection>()
  #isStopping = false
  #whenEmpty: (() => void) | undefined

  constructor(options: ConnectionsOptions) {
    this.#options = options
  }

  /** Adds a connection, whose `peer` logs name. Returns false for one that a limit refuses, and destroys it. */
  add(socket: Socket, peer: string): boolean {
    // 'close' follows every error and is handled below.
    socket.on('error', () => {})
    // The end of the client's side ends its calls, so a half-open connection has no use.
    socket.allowHalfOpen = false
    const totals = this.#options.totals.addConnection((reason) => this.refuse(socket, peer, reason))
    if (totals === undefined) {
      this.refuse(socket, peer, 'too many connections')
      return false
    }
    this.#open.set(socket, { peer, totals, served: undefined })
    socket.once('close', () => {
      totals.end()
      this.#open.delete(socket)
      if (this.#open.size === 0) this.#whenEmpty?.()
    })
    return true
  }

  /** Closes a connection. Logs it at debug level, so that a peer cannot fill the console by connecting. */
  refuse(socket: Socket, peer: string, reason: string): void {
    this.#options.log.debug('connection refused', { peer, reason })
    socket.destroy()
  }

  /** Serves ttRPC on a data socket of the broker. Does nothing for a connection that is not open. */
  serveTtrpc(socket: Socket, sendNow: SendNow): void {
    const open = this.#open.get(socket)
    if (open === undefined) return
    const { methods, startTimer, link } = this.#options
    const { peer, totals } = open
    const connection = new TtrpcServerConnection(socket, { methods, peer, startTimer, totals, link, sendNow })
    open.served = connection
    connection.start()
    if (this.#isStopping) connection.drain()
  }

  /** Serves gRPC on the client's own socket, of which `firstBytes` have been read already. */
  serveGrpc(socket: Socket, firstBytes: Buffer): void {
    this.#loadAndServeGrpc(socket, firstBytes).catch((error) => {
      this.#options.log.error('cannot serve gRPC', { error: messageOf(error) })
      socket.destroy()
    })
  }

  /** Takes no more calls. Connections close when their calls are answered, or after 5 s. Resolves when all are closed. */
  async stop(): Promise<void> {
    this.#isStopping = true
    for (const [socket, { served }] of this.#open) {
      if (served === undefined) socket.destroy()
      else served.drain()
    }
    if (this.#open.size === 0) return
    const empty = Promise.withResolvers<void>()
    this.#whenEmpty = empty.resolve
    const stopTimer = this.#options.startTimer(STOP_MS, () => {
      this.#options.log.warn('connections cut at the stop', { count: this.#open.size })
      for (const socket of this.#open.keys()) socket.destroy()
    })
    await empty.promise
    stopTimer()
  }

  async #loadAndServeGrpc(socket: Socket, firstBytes: Buffer): Promise<void> {
    socket.pause()
    // Loaded by the first gRPC client, because it would take half of the agent's start-up time, and 10 MB.
    const { serveGrpc } = await import('../../rpc/grpc/server.ts')
    const open = this.#open.get(socket)
    if (open === undefined || socket.destroyed) return
    const { methods, streams, readDescriptors, checkCall, startTimer } = this.#options
    const { totals, peer } = open
    const calls = { methods, ...(streams && { streams }), readDescriptors, checkCall }
    open.served = serveGrpc(socket, { ...calls, startTimer, totals, peer, firstBytes })
    if (this.#isStopping) open.served.drain()
  }
}
