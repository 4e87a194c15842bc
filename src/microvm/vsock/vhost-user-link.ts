import { join } from 'node:path'
import { connectSocket } from '../connect-socket.ts'
import { startSocketServer } from '../socket-of-child.ts'
import { AGENT_PORT, type GuestLink } from './guest-link.ts'
import { hybridHandshake } from './hybrid.ts'

/** The daemon serves one guest in a folder of its own, so the number need not be unique on this host. */
const GUEST_CID = 3

/** The socket that reaches the guest; beside it, with `_PORT` behind its name, is where the guest reaches the host. */
export function guestSocketIn(folder: string): string {
  return join(folder, 'vsock.sock')
}

/**
 * Through the vhost-user daemon vhost-device-vsock (`program`), which is started here and makes its sockets in
 * `folder`. Rejects with UNAVAILABLE, naming the daemon's own words, when it does not start.
 */
export async function vhostUserLink(program: string, folder: string): Promise<GuestLink> {
  const guestSocket = guestSocketIn(folder)
  const vhostSocket = join(folder, 'vhost-user.sock')
  const vm = `guest-cid=${GUEST_CID},socket=${vhostSocket},uds-path=${guestSocket}`
  const daemon = await startSocketServer('vhost-device-vsock', [program, '--vm', vm], vhostSocket)
  return {
    device: (slot, backend) => ({ kind: 'vsock', slot, cid: GUEST_CID, backend }),
    backend: { kind: 'vhost-user', socket: vhostSocket },
    commandLine: [],
    connect: async (signal) => {
      const socket = await connectSocket({ path: guestSocket }, signal)
      try {
        await hybridHandshake(socket, AGENT_PORT, signal)
        return socket
      } catch (error) {
        socket.destroy()
        throw error
      }
    },
    close: () => daemon.kill(),
  }
}
