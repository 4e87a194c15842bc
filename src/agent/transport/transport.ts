import type { Socket } from 'node:net'
import type { ListenAddress, Sockets } from '../../os/sockets/sockets.ts'
import type { Broker, BrokerConnection } from '../../os/supervisor/broker.ts'
import type { BrokerPeer } from '../../os/supervisor/broker-messages.ts'
import { LIMITS } from '../../rpc/limits.ts'
import { type StartTimer, startTimer } from '../../rpc/timer.ts'
import { Connections, type ConnectionsOptions } from './connections.ts'

/** The parts that the transport needs. */
export interface TransportOptions extends Omit<ConnectionsOptions, 'link' | 'startTimer'> {
  readonly sockets: Sockets
  readonly address: ListenAddress
  /** Accepts the clients' connections, and keeps them when this agent dies (docs/broker.md). */
  readonly broker: Broker
  /** How long the agent may leave the broker's pings unanswered, in milliseconds; 0: for ever. */
  readonly hangMs: number
  /** Accept processes of this guest over vsock, for tests. */
  readonly allowLoopback: boolean
  /** For tests. */
  readonly startTimer?: StartTimer
}

/** The agent's connections. */
export interface Transport {
  /** The listening port, as chosen by the kernel for TCP port 0; undefined for unix sockets. */
  readonly port: number | undefined
  /**
   * Accepts no more connections and calls. Connections close when their calls are answered, or after 5 s. Resolves when
   * all are closed.
   */
  stop(): Promise<void>
}

/** Opens a socket at the address, hands it to the broker, and serves both framings on every connection. */
export async function startTransport(options: TransportOptions): Promise<Transport> {
  const { sockets, address, broker, allowLoopback, hangMs } = options
  const connections = new Connections({
    ...options,
    link: broker,
    startTimer: options.startTimer ?? startTimer,
  })
  const listening = await sockets.open(address)
  const { connection, messageBytes, total } = LIMITS
  const limits = {
    ...{ allowLoopback, hangMs, connections: LIMITS.connections, headerMs: connection.headerMs },
    ...{ framePayloadBytes: messageBytes, totalBytes: total.bytes.limit },
  }
  await broker.serve(listening.fd, limits, (accepted) =>
    serve(sockets.adopt(accepted.fd), accepted, connections),
  )
  sockets.release(listening)
  return {
    port: listening.port,
    stop: async () => {
      broker.stopAccepting()
      await Promise.all([connections.stop(), sockets.removePath(listening)])
    },
  }
}

function serve(socket: Socket, accepted: BrokerConnection, connections: Connections): void {
  const { framing, peer, firstBytes, sendNow, close } = accepted
  if (framing === 'ttrpc') closeWith(socket, close)
  if (!connections.add(socket, nameOfPeer(peer))) return
  if (framing === 'ttrpc') connections.serveTtrpc(socket, sendNow)
  else connections.serveGrpc(socket, firstBytes)
}

/** Has the broker close the client when the agent has ended its data socket first. */
function closeWith(socket: Socket, close: () => void): void {
  let isOver = false
  const end = () => {
    if (!isOver && !socket.readableEnded) close()
    isOver = true
  }
  // Everything that was written is in the socket by then.
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
