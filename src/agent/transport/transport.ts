import { messageOf } from '../../base/errors.ts'
import type { ListenAddress, Sockets } from '../../os/sockets/sockets.ts'
import type { Broker } from '../../os/supervisor/broker.ts'
import { LIMITS } from '../../rpc/limits.ts'
import { type StartTimer, startTimer } from '../../rpc/timer.ts'
import { Connections, type SharedByConnections } from './connections.ts'

export interface Transport {
  /** The listening port, as chosen by the kernel for TCP port 0; undefined for unix sockets. */
  readonly port: number | undefined
  /** Stops accepting, then waits like {@link Connections.stop}. */
  stop(): Promise<void>
  dropOlder: Connections['dropOlder']
}

/** Opens a socket at the address, hands it to the broker, and serves both framings on every connection. */
export async function startTransport(
  options: Omit<SharedByConnections, 'link' | 'startTimer'> & {
    readonly sockets: Sockets
    readonly address: ListenAddress
    /** Accepts the clients' connections, and keeps them when this agent dies (docs/broker.md). */
    readonly broker: Broker
    /** How long the agent may leave the broker's pings unanswered, in milliseconds; 0: for ever. */
    readonly hangMs: number
    /** Accepts processes of this guest over vsock, for tests. */
    readonly allowLoopback: boolean
    /** The only address that may connect over TCP; empty: any. */
    readonly tcpPeer: string
    /** For tests. */
    readonly startTimer?: StartTimer
  },
): Promise<Transport> {
  const { sockets, address, broker, allowLoopback, tcpPeer, hangMs } = options
  const connections = new Connections({
    ...options,
    link: broker,
    startTimer: options.startTimer ?? startTimer,
  })
  const listening = await sockets.open(address)
  const { connection, messageBytes, total } = LIMITS
  const limits = {
    allowLoopback,
    tcpPeer,
    hangMs,
    connections: LIMITS.connections,
    headerMs: connection.headerMs,
    framePayloadBytes: messageBytes,
    totalBytes: total.bytes.limit,
  }
  await broker.serve(listening.fd, limits, (accepted) => {
    const { framing, fd } = accepted
    if (framing === 'ttrpc') connections.serveTtrpc(sockets.dataSocket(fd), accepted)
    else {
      const served = sockets.netSocket(fd).then((socket) => connections.serveGrpc(socket, accepted))
      served.catch((error) => broker.fail(messageOf(error)))
    }
  })
  sockets.release(listening)
  return {
    port: listening.port,
    dropOlder: (...than) => connections.dropOlder(...than),
    stop: async () => {
      broker.stopAccepting()
      await Promise.all([connections.stop(), sockets.removePath(listening)])
    },
  }
}
