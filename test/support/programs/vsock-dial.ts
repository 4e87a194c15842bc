import { HealthDefinition } from '../../../src/gen/health.ts'
import { encodeRequestFrame } from '../../../src/rpc/ttrpc/messages.ts'
import type { Pod, RemoteProcess } from '../containers/pod.ts'
import { guestProgram } from './guest/guest-program.ts'
import { VSOCK_ALLOWED } from './vsock-attempts.ts'

/** Runs vsock-pipe in a container: it sends Health.Check in ttRPC through the guest's loopback (CID 1). */
export async function dialFromContainer(pod: Pod): Promise<RemoteProcess> {
  const install = 'cat > /tmp/dial; chmod +x /tmp/dial; echo there; sleep 1000'
  const init = await pod.run('dial', ['sh', '-c', install], { spec: { Annotations: VSOCK_ALLOWED } })
  await init.write(await guestProgram('vsock-pipe'))
  await init.closeStdin()
  await init.readUntil('there')
  const dialling = await pod.add('dial', 'e', ['/tmp/dial', '1', '1024'])
  // If the agent refuses the connection, the process may end before it has read its input.
  await dialling.write(checkFrame()).catch(() => {})
  await dialling.closeStdin()
  return dialling
}

function checkFrame(): Uint8Array {
  return encodeRequestFrame(1, {
    service: HealthDefinition.fullName,
    method: HealthDefinition.methods.check.name,
    payload: new Uint8Array(),
    timeoutNano: 0n,
  })
}
