import { messageOf } from '../base/errors.ts'
import type { Logger } from '../base/log.ts'
import type { Os } from '../os/os.ts'
import { isPeerAllowed } from '../os/sockets/allow-list.ts'
import type { HostAddress, HostPeer } from '../os/sockets/host-sockets.ts'
import type { Fd } from '../os/streams/streams.ts'

/**
 * Accepts connections of the host only. vminit keeps the listening socket, so that no container can take the port while no
 * agent runs. A port that cannot be opened is logged. Returns the function that stops listening.
 */
export async function listenForHost(
  parts: {
    readonly os: Pick<Os, 'hostSockets' | 'streams'>
    readonly log: Logger
    readonly allowLoopback: boolean
  },
  options: {
    /** The name of the socket in vminit's store. */
    readonly name: string
    readonly address: HostAddress
    /** Takes ownership of `fd`. */
    readonly connection: (fd: Fd, peer: string) => void
  },
): Promise<(() => void) | undefined> {
  const { os, log, allowLoopback } = parts
  const { name, address, connection } = options
  try {
    const { close } = await os.hostSockets.listen(name, address, {
      connection(fd, peer) {
        // The mode of a unix socket's path already limits who can connect.
        if (peer.kind === 'unix' || isPeerAllowed(peer, allowLoopback)) return connection(fd, nameOf(peer))
        os.streams.close(fd)
        log.debug('connection refused: not the host', { socket: name, peer: nameOf(peer) })
      },
      error: (error) => log.error('connection not accepted', { socket: name, error: messageOf(error) }),
    })
    return close
  } catch (error) {
    log.error('port not opened', { socket: name, error: messageOf(error) })
    return undefined
  }
}

function nameOf(peer: HostPeer): string {
  return peer.kind === 'unix' ? 'unix' : `vsock ${peer.cid}:${peer.port}`
}
