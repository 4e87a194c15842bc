import { createServer } from 'node:net'
import { AgentError } from '../../base/errors.ts'
import { AGENT_PORT, type OwnLink } from './guest-link.ts'

/** The guest's address in QEMU's user network. */
const GUEST_ADDRESS = '10.0.2.15'
/** `ip=` of the kernel (Documentation/admin-guide/nfs/nfsroot.rst): address, gateway, mask, interface, no DHCP. */
const GUEST_NETWORK = `ip=${GUEST_ADDRESS}::10.0.2.2:255.255.255.0::eth0:off`
/** Locally administered. */
const GUEST_MAC = '52:54:00:00:00:02'

/** A link without vsock: the agent listens on TCP in QEMU's user network, forwarded from a port of this host's loopback. */
export async function tcpLink(): Promise<OwnLink> {
  const hostPort = await freePort()
  return {
    device: (slot, backend) => ({ kind: 'nic', slot, mac: GUEST_MAC, backend }),
    backend: { kind: 'user-network', forwards: [{ hostPort, guestPort: AGENT_PORT }] },
    commandLine: [`agent.server_addr=tcp://0.0.0.0:${AGENT_PORT}`, GUEST_NETWORK],
    address: { kind: 'tcp', host: '127.0.0.1', port: hostPort },
    close: async () => {},
  }
}

/** A port that was free a moment ago: QEMU cannot choose one itself and report it. */
async function freePort(): Promise<number> {
  const server = createServer()
  const listening = Promise.withResolvers<void>()
  server.once('error', listening.reject).listen(0, '127.0.0.1', listening.resolve)
  await listening.promise
  const address = server.address()
  const closed = Promise.withResolvers<void>()
  server.close(() => closed.resolve())
  await closed.promise
  if (address !== null && typeof address === 'object') return address.port
  throw new AgentError('INTERNAL', 'TCP server: no port')
}
