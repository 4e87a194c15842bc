import { once } from 'node:events'
import { createServer, type Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import { pipeline } from 'node:stream/promises'

/** A unix socket that leads to somewhere else. */
export interface Forward {
  readonly path: string
  /** Resolves when no connection is left of those that there are now. */
  ended(): Promise<void>
  /** Breaks all connections. */
  drop(): void
  close(): void
}

/** Listens at `path`; each connection gets one of its own from `connect`. */
export async function forward(path: string, connect: () => Promise<Duplex>): Promise<Forward> {
  const open = new Set<Socket>()
  const server = createServer((socket) => {
    open.add(socket)
    socket.once('close', () => open.delete(socket))
    // However it ends, both sides are closed, which is all that a client is owed here.
    void bridge(socket, connect).catch(() => socket.destroy())
  })
  server.listen(path)
  await once(server, 'listening')
  const drop = () => {
    for (const socket of open) socket.destroy()
  }
  return {
    path,
    ended: async () => {
      await Promise.all([...open].map((socket) => new Promise((resolve) => socket.once('close', resolve))))
    },
    drop,
    close: () => {
      server.close()
      drop()
    },
  }
}

async function bridge(socket: Socket, connect: () => Promise<Duplex>): Promise<void> {
  const inside = await connect()
  await Promise.all([pipeline(socket, inside), pipeline(inside, socket)])
}
