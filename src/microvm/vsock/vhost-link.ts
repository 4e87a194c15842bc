import { buildAgent } from '../../build/agent.ts'
import { loadNative } from '../../os/native.ts'
import { linuxSockets } from '../../os/sockets/sockets.ts'
import { linuxStreams } from '../../os/streams/linux-streams.ts'
import { AGENT_PORT, type GuestLink } from './guest-link.ts'

/** Context ids below 3 are reserved. The pid is added, so that each guest of this host has its own. */
const FIRST_CID = 3

/** A link through /dev/vhost-vsock: the kernel connects the guest, and AF_VSOCK reaches it. */
export async function vhostLink(): Promise<GuestLink> {
  const cid = FIRST_CID + process.pid
  // Node lacks AF_VSOCK; the agent's addon has it.
  const native = loadNative(await buildAgent())
  const sockets = linuxSockets(native, linuxStreams(native))
  return {
    device: (slot, backend) => ({ kind: 'vsock', slot, cid, backend }),
    backend: { kind: 'vhost-vsock' },
    commandLine: [],
    connect: (signal) => sockets.connectVsock({ cid, port: AGENT_PORT }, signal),
    close: async () => {},
  }
}
