import type { Socket } from 'node:net'
import { isPeerAllowed } from '../../os/sockets/allow-list.ts'
import type { ListenAddress, ListeningSocket, Sockets } from '../../os/sockets/sockets.ts'
import type { Broker, BrokerConnection } from '../../os/supervisor/broker.ts'
import type { BrokerPeer } from '../../os/supervisor/broker-messages.ts'
import { LIMITS } from '../../rpc/limits.ts'
import { type StartTimer, startTimer } from '../../rpc/timer.ts'
import { brokerFraming } from '../../rpc/ttrpc/broker-framing.ts'
import type { OpenFraming } from '../../rpc/ttrpc/framing.ts'
import { Connections, type ConnectionsOptions } from './connections.ts'
import { ProtocolDetection } from './detect-protocol.ts'

/** The parts that the transport needs. */
export interface TransportOptions extends Omit<ConnectionsOptions, 'startTimer'> {
  readonly sockets: Sockets
  readonly address: ListenAddress
  /** Has the clients' connections; without it the agent accepts them itself. */
  readonly broker: Broker | undefined
  /** How long the agent may leave the broker's pings unanswered, in milliseconds; 0: for ever. */
  readonly hangMs: number
  /** Accept processes of this guest over vsock, for tests. */
  readonly allowLoopback: boolean
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

/** Opens a socket at the address, and serves both framings on every connection. */
export async function startTransport(options: TransportOptions): Promise<Transport> {
  const { sockets, address, broker } = options
  const timer = options.startTimer ?? startTimer
  const connections = new Connections({ ...options, startTimer: timer })
  const listening = await sockets.open(address)
  return broker === undefined
    ? await acceptDirectly(options, listening, connections, timer)
    : await acceptByBroker({ ...options, broker }, listening, connections, timer)
}

/** The agent's own process accepts connections, and they end with it. */
async function acceptDirectly(
  { sockets, address, allowLoopback }: TransportOptions,
  listening: ListeningSocket,
  connections: Connections,
  timer: StartTimer,
): Promise<Transport> {
  const nameOf = (socket: Socket) => {
    const peer = sockets.peerOf(socket)
    if (peer !== undefined) return nameOfPeer({ kind: 'vsock', ...peer })
    const { remoteAddress, remotePort = 0 } = socket
    if (remoteAddress === undefined) return nameOfPeer({ kind: 'unix' })
    return nameOfPeer({ kind: 'tcp', address: remoteAddress, port: remotePort })
  }
  const detection = new ProtocolDetection({
    headerMs: LIMITS.connection.headerMs,
    startTimer: timer,
    detected: ({ socket, framing, firstBytes }) =>
      framing === 'ttrpc'
        ? connections.serveTtrpc(socket, firstBytes)
        : connections.serveGrpc(socket, firstBytes),
    refused: (socket, reason) => connections.refuse(socket, nameOf(socket), reason),
  })
  const listener = await sockets.accept(listening, (socket) => {
    // The address of a unix or TCP socket itself limits who can connect.
    if (address.kind === 'vsock' && !isPeerAllowed(sockets.peerOf(socket), allowLoopback)) {
      connections.refuse(socket, nameOf(socket), 'not the host')
    } else if (connections.add(socket, nameOf(socket))) {
      detection.add(socket)
    }
  })
  return {
    port: listener.port,
    stop: async () => {
      await listener.close()
      detection.close()
      await connections.stop()
    },
  }
}

/** The broker accepts connections, and keeps them when this agent dies (docs/broker.md). */
async function acceptByBroker(
  { sockets, broker, allowLoopback, hangMs }: TransportOptions & { readonly broker: Broker },
  listening: ListeningSocket,
  connections: Connections,
  timer: StartTimer,
): Promise<Transport> {
  const { connection, messageBytes, total } = LIMITS
  const limits = {
    ...{ allowLoopback, hangMs, connections: LIMITS.connections, headerMs: connection.headerMs },
    ...{ framePayloadBytes: messageBytes, totalBytes: total.bytes.limit },
  }
  await broker.serve(listening.fd, limits, (accepted) => {
    const open = brokerFraming(broker, timer, accepted.sendNow)
    serveBrokered(sockets.adopt(accepted.fd), accepted, connections, open)
  })
  sockets.release(listening)
  return {
    port: listening.port,
    stop: async () => {
      broker.stopAccepting()
      await Promise.all([connections.stop(), sockets.removePath(listening)])
    },
  }
}

function serveBrokered(
  socket: Socket,
  { framing, peer, firstBytes, close }: BrokerConnection,
  connections: Connections,
  open: OpenFraming,
): void {
  if (framing === 'ttrpc') closeWith(socket, close)
  if (!connections.add(socket, nameOfPeer(peer))) return
  if (framing === 'ttrpc') connections.serveTtrpc(socket, firstBytes, open)
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
