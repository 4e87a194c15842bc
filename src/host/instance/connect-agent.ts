import { join } from 'node:path'
import { AgentError } from '../../base/errors.ts'
import { dial } from '../../client/connection/dial.ts'
import { AGENT_PORT } from '../qemu/vsock/guest-link.ts'
import { specificationOf } from './devices/plug.ts'
import type { MachineInstance } from './instance.ts'
import { joined } from './streams.ts'

/** Bytes to and from the agent in the guest, by the way that the machine has. */
export async function* connectAgent(
  instance: MachineInstance,
  input: AsyncIterable<Uint8Array>,
  signal: AbortSignal,
): AsyncGenerator<Uint8Array> {
  instance.machine()
  yield* joined(await dial(addressOf(instance), signal), input, signal)
}

function addressOf(instance: MachineInstance): Parameters<typeof dial>[0] {
  const { devices, backends } = specificationOf(instance)
  const vsock = Object.values(devices).find((device) => device.vsock !== undefined)
  const backend = backends[vsock?.backend ?? '']
  if (backend?.vsockDaemon !== undefined)
    return { kind: 'hvsock', path: join(instance.context.folder, 'vsock.sock'), port: AGENT_PORT }
  if (backend?.vhostVsock !== undefined) return { kind: 'vsock', cid: instance.record.cid, port: AGENT_PORT }
  throw new AgentError(
    'FAILED_PRECONDITION',
    `instance ${instance.key}: no vsock, want a device of this kind`,
  )
}
