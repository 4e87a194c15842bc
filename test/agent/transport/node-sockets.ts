import { once } from 'node:events'
import { createServer, type Socket } from 'node:net'
import type { Sockets, VsockAddress } from '../../../src/os/sockets.ts'

/** Real unix and TCP sockets without the addon. `peer` makes every connection one of a vsock peer. */
export function nodeSockets(options: { readonly peer?: VsockAddress } = {}): Sockets & {
  /** The server's end of every connection accepted so far. */
  readonly accepted: readonly Socket[]
} {
  const accepted: Socket[] = []
  return {
    accepted,
    listen: async (address, onConnection) => {
      if (address.kind === 'vsock') throw new Error('no vsock here')
      const server = createServer({ allowHalfOpen: true }, (socket) => {
        accepted.push(socket)
        onConnection(socket)
      })
      server.listen(
        address.kind === 'tcp' ? { host: address.host, port: address.port } : { path: address.path },
      )
      await once(server, 'listening')
      const bound = server.address()
      return {
        port: bound === null || typeof bound === 'string' ? undefined : bound.port,
        close: async () => {
          server.close()
        },
      }
    },
    peerOf: () => options.peer,
    connectVsock: async () => {
      throw new Error('no vsock here')
    },
  }
}
