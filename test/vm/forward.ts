import { once } from 'node:events'
import { createServer, type Socket } from 'node:net'
import { join } from 'node:path'
import { pipeline } from 'node:stream/promises'
import type { TestGuest } from './boot-guest.ts'

/** A unix socket of this machine that leads to the agent of a guest. */
export interface Forward {
  readonly path: string
  close(): void
}

/**
 * Lets programs that know unix sockets alone reach a guest's agent: each connection gets one of its own over the guest's
 * link. The socket is in the guest's private folder.
 */
export async function forwardTo({ guest, folder }: TestGuest): Promise<Forward> {
  const path = join(folder, 'forward.sock')
  const open = new Set<Socket>()
  const server = createServer((socket) => {
    open.add(socket)
    socket.once('close', () => open.delete(socket))
    // However it ends, both sides are closed, which is all that a client is owed here.
    void bridge(socket, guest).catch(() => socket.destroy())
  })
  server.listen(path)
  await once(server, 'listening')
  return {
    path,
    close: () => {
      server.close()
      for (const socket of open) socket.destroy()
    },
  }
}

async function bridge(socket: Socket, { link, vm }: TestGuest['guest']): Promise<void> {
  const inside = await link.connect(vm.gone)
  await Promise.all([pipeline(socket, inside), pipeline(inside, socket)])
}
