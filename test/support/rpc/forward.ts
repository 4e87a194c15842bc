import { once } from 'node:events'
import { createServer, type Socket } from 'node:net'
import { join } from 'node:path'
import type { Duplex } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import type { TestGuest } from '../vm/boot-guest.ts'

export interface Forward {
  readonly path: string
  ended(): Promise<void>
  drop(): void
  close(): void
}

export async function forward(path: string, connect: () => Promise<Duplex>): Promise<Forward> {
  const open = new Set<Socket>()
  const server = createServer((socket) => {
    open.add(socket)
    socket.once('close', () => open.delete(socket))
    // When either side ends, both are closed; the tests need no more.
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

/** Lets programs that support only unix sockets reach a guest's agent. The socket is in the guest's private folder. */
export function forwardToGuest({ guest, folder }: TestGuest): Promise<Forward> {
  return forward(join(folder, 'forward.sock'), () => guest.connect(guest.vm.gone))
}

async function bridge(socket: Socket, connect: () => Promise<Duplex>): Promise<void> {
  const inside = await connect()
  await Promise.all([pipeline(socket, inside), pipeline(inside, socket)])
}
