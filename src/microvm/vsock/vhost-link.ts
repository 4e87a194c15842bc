import { buildAgent } from '../../build/agent.ts'
import { AGENT_PORT, type OwnLink } from './guest-link.ts'

/** Context ids below 3 are reserved. The pid is added, so that each guest of this host has its own. */
const FIRST_CID = 3

/** A link through /dev/vhost-vsock: the kernel connects the guest, and AF_VSOCK reaches it. */
export async function vhostLink(): Promise<OwnLink> {
  const cid = FIRST_CID + process.pid
  // Node lacks AF_VSOCK; the agent's addon, by which the address is dialled, has it.
  await buildAgent()
  return {
    device: (slot, backend) => ({ kind: 'vsock', slot, cid, backend }),
    backend: { kind: 'vhost-vsock' },
    commandLine: [],
    address: { kind: 'vsock', cid, port: AGENT_PORT },
    close: async () => {},
  }
}
