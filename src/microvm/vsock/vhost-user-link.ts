import { join } from 'node:path'
import { startSocketServer } from '../child.ts'
import { AGENT_PORT, type OwnLink } from './guest-link.ts'

/** The daemon serves this guest alone, so the number need not be unique on this host. */
const GUEST_CID = 3

/**
 * The daemon 0.3.0 drops a packet of more than two descriptors, which Linux 6.12 sends above some 32 KiB. The guest has no
 * more bytes on their way than this buffer takes.
 */
const BUFFER_BYTES = 28 * 1024

/** The socket that reaches the guest. The guest reaches the host at the same path with `_PORT` appended. */
export function guestSocketIn(folder: string): string {
  return join(folder, 'vsock.sock')
}

/**
 * A link through the vhost-user daemon vhost-device-vsock (`program`), which this starts and which makes its sockets in
 * `folder`. Rejects with UNAVAILABLE and the daemon's own words when it does not start.
 */
export async function vhostUserLink(program: string, folder: string): Promise<OwnLink> {
  const guestSocket = guestSocketIn(folder)
  const vhostSocket = join(folder, 'vhost-user.sock')
  const sockets = `socket=${vhostSocket},uds-path=${guestSocket}`
  const vm = `guest-cid=${GUEST_CID},${sockets},tx-buffer-size=${BUFFER_BYTES}`
  const daemon = await startSocketServer('vhost-device-vsock', [program, '--vm', vm], vhostSocket)
  return {
    device: (slot, backend) => ({ kind: 'vsock', slot, cid: GUEST_CID, backend }),
    backend: { kind: 'vhost-user', socket: vhostSocket },
    commandLine: [],
    address: { kind: 'hvsock', path: guestSocket, port: AGENT_PORT },
    close: () => daemon.kill(),
  }
}
