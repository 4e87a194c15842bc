import { once } from 'node:events'
import { createServer, type Socket } from 'node:net'
import type { Sockets, VsockAddress } from '../../../src/os/sockets/sockets.ts'

/** Real unix and TCP sockets without the addon; vsock is a unix socket whose connections all come from one peer. */
export function nodeSockets(
  options: { readonly peer?: VsockAddress; readonly vsockPath?: string } = {},
): Sockets & {
  /** The server's end of every connection accepted so far. */
  readonly accepted: readonly Socket[]
  /** Resolves when the next connection is accepted. */
  nextAccepted(): Promise<void>
} {
  const accepted: Socket[] = []
  const waiting: (() => void)[] = []
  return {
    accepted,
    nextAccepted: () => new Promise((resolve) => waiting.push(resolve)),
    open: async (address) => ({ address, fd: -1, port: undefined }),
    release: () => {},
    removePath: async () => {},
    adopt: () => {
      throw new Error('no descriptors here')
    },
    accept: async ({ address }, onConnection) => {
      const server = createServer({ allowHalfOpen: true }, (socket) => {
        accepted.push(socket)
        onConnection(socket)
        for (const tell of waiting.splice(0)) tell()
      })
      const path = address.kind === 'unix' ? address.path : options.vsockPath
      server.listen(address.kind === 'tcp' ? address : { path })
      await once(server, 'listening')
      const bound = server.address()
      return {
        port: typeof bound === 'object' ? bound?.port : undefined,
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
