import type { Socket } from 'node:net'
import { messageOf } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import type { DataSocket } from '../../os/sockets/data-socket.ts'
import type { BrokerConnection } from '../../os/supervisor/broker.ts'
import type { BrokerPeer } from '../../os/supervisor/broker-messages.ts'
import type { ServedConnection } from '../../rpc/connection.ts'
import type { ReadDescriptors } from '../../rpc/grpc/reflection.ts'
import type { AcceptedGrpc } from '../../rpc/grpc/server.ts'
import type { Totals } from '../../rpc/limits.ts'
import type { CheckCall, MethodTable, StreamTable } from '../../rpc/method.ts'
import type { StartTimer } from '../../rpc/timer.ts'
import type { BrokerLink } from '../../rpc/ttrpc/broker-framing.ts'
import { type AcceptedTtrpc, TtrpcServerConnection } from '../../rpc/ttrpc/server-connection.ts'

export interface SharedByConnections {
  readonly methods: MethodTable
  readonly streams?: StreamTable
  readonly readDescriptors: ReadDescriptors
  readonly checkCall: CheckCall
  readonly totals: Totals
  readonly log: Logger
  readonly startTimer: StartTimer
  readonly boottimeNs: () => bigint
  /** The broker, which owns the connections of ttRPC. */
  readonly link: BrokerLink
  /** A connection from another machine has failed: an error, not its end. */
  readonly onBroken?: () => void
}

const STOP_MS = 5_000

/** How long a client that is dropped has to read that it is. */
const DROP_MS = 100

interface AnySocket {
  on(event: 'error', listener: () => void): unknown
  once(event: 'close', listener: () => void): unknown
  destroy(): unknown
}

interface OpenConnection {
  readonly peer: string
  readonly kind: BrokerPeer['kind']
  readonly acceptedNs: bigint
  /** Undefined while the framing is being loaded. */
  readonly served: ServedConnection | undefined
}

export class Connections {
  readonly #shared: SharedByConnections
  /** The oldest first. */
  readonly #open = new Map<AnySocket, OpenConnection>()
  #isStopping = false
  #whenEmpty: (() => void) | undefined

  constructor(shared: SharedByConnections) {
    this.#shared = shared
  }

  /** Serves a connection of the broker until its end, unless a limit refuses it. */
  serveTtrpc(socket: DataSocket, accepted: BrokerConnection): void {
    closeWith(socket, accepted.close)
    const own = this.#admit(socket, accepted)
    if (own === undefined) return
    const { methods, startTimer, link } = this.#shared
    const { sendNow, files } = accepted
    const connection = new TtrpcServerConnection(socket, {
      methods,
      startTimer,
      link,
      sendNow,
      files,
      ...own,
    })
    connection.start()
    this.#began(socket, connection)
  }

  /** The same; `socket` is the client's own. */
  serveGrpc(socket: Socket, accepted: BrokerConnection): void {
    // The end of the client's side ends its calls, so a half-open connection has no use.
    socket.allowHalfOpen = false
    const own = this.#admit(socket, accepted)
    if (own === undefined) return
    this.#loadGrpc(socket, { ...own, firstBytes: accepted.firstBytes }).catch((error) => {
      this.#shared.log.error('gRPC not served', { error: messageOf(error) })
      socket.destroy()
    })
  }

  /** Undefined for a connection that a limit refuses. */
  #admit(socket: AnySocket, accepted: BrokerConnection): Pick<AcceptedTtrpc, 'peer' | 'totals'> | undefined {
    socket.once('close', accepted.files.forget)
    // 'close' follows every error and is handled below.
    socket.on('error', () => {
      if (accepted.peer.kind !== 'unix') this.#shared.onBroken?.()
    })
    const peer = nameOfPeer(accepted.peer)
    const refuse = (reason: string) => {
      // At debug level, so that a peer cannot fill the console by connecting.
      this.#shared.log.debug('connection refused', { peer, reason })
      socket.destroy()
    }
    const totals = this.#shared.totals.addConnection(refuse)
    if (totals === undefined) {
      refuse('too many connections')
      return undefined
    }
    const acceptedNs = this.#shared.boottimeNs()
    this.#open.set(socket, { peer, kind: accepted.peer.kind, acceptedNs, served: undefined })
    socket.once('close', () => {
      totals.end()
      this.#open.delete(socket)
      if (this.#open.size === 0) this.#whenEmpty?.()
    })
    return { peer, totals }
  }

  /** Refuses new calls. Connections close when their calls are answered, or after 5 s. Resolves when all are closed. */
  async stop(): Promise<void> {
    this.#isStopping = true
    for (const [socket, { served }] of this.#open) {
      if (served === undefined) socket.destroy()
      else served.drain()
    }
    if (this.#open.size === 0) return
    const empty = Promise.withResolvers<void>()
    this.#whenEmpty = empty.resolve
    const stopTimer = this.#shared.startTimer(STOP_MS, () => {
      this.#shared.log.warn('connections cut at the stop', { count: this.#open.size })
      for (const socket of this.#open.keys()) socket.destroy()
    })
    await empty.promise
    stopTimer()
  }

  /**
   * Closes the TCP connections that are older than the one of this peer, or when it is not open, than this moment: after a
   * restore their other ends are gone, and nothing tells the kernel. Returns how many there were. A client that lives has
   * some time to read that its connection ends.
   */
  dropOlder(than: string, beforeNs: bigint): number {
    const all = [...this.#open]
    const own = all.findIndex(([, { peer }]) => peer === than)
    const end = own === -1 ? all.findIndex(([, { acceptedNs }]) => acceptedNs > beforeNs) : own
    const dropped = all.slice(0, end === -1 ? undefined : end).filter(([, { kind }]) => kind === 'tcp')
    for (const [socket, { served }] of dropped) {
      if (served === undefined) {
        socket.destroy()
        continue
      }
      socket.once(
        'close',
        this.#shared.startTimer(DROP_MS, () => socket.destroy()),
      )
      served.drain()
    }
    return dropped.length
  }

  /** `firstBytes` were already read from the socket. */
  async #loadGrpc(socket: Socket, own: Pick<AcceptedGrpc, 'peer' | 'totals' | 'firstBytes'>): Promise<void> {
    socket.pause()
    // Loaded by the first gRPC client, because it would take half of the agent's start-up time, and 10 MB.
    const { serveGrpc } = await import('../../rpc/grpc/server.ts')
    if (socket.destroyed) return
    const { methods, streams, readDescriptors, checkCall, startTimer } = this.#shared
    const calls = { methods, ...(streams && { streams }), readDescriptors, checkCall }
    this.#began(socket, serveGrpc(socket, { ...calls, startTimer, ...own }))
  }

  #began(socket: AnySocket, served: ServedConnection): void {
    const known = this.#open.get(socket)
    if (known !== undefined) this.#open.set(socket, { ...known, served })
    if (this.#isStopping) served.drain()
  }
}

/** Makes the broker close the client when the agent ends its data socket first. */
function closeWith(socket: DataSocket, close: () => void): void {
  let isOver = false
  const end = () => {
    if (!isOver && !socket.readableEnded) close()
    isOver = true
  }
  // All written bytes are in the socket by then.
  socket.once('finish', end).once('close', end)
}

function nameOfPeer(peer: BrokerPeer): string {
  switch (peer.kind) {
    case 'unix':
      return 'unix'
    case 'vsock':
      return `vsock ${peer.cid}:${peer.port}`
    case 'tcp':
      return `tcp ${peer.address} ${peer.port}`
  }
}
