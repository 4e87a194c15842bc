import { connectAgent } from '../../../src/microvm/connect-agent.ts'
import { agentOf } from '../../../src/microvm/run/container-session.ts'
import { bind } from '../containers/container-requests.ts'
import type { Pod } from '../containers/pod.ts'
import { startAttempts, VSOCK_ALLOWED } from '../programs/vsock-attempts.ts'
import type { TestGuest } from '../vm/boot-guest.ts'
import { createPod, GUEST_PROC } from '../vm/guest-pod.ts'

const OUTCOME = 'came-of-it'

/**
 * Has a container that may make vsock sockets kill the agent and bind the API's port at once. Returns what that came to,
 * and a pod of the agent that `vminit` has started then.
 */
export async function portAfterKill(
  guest: TestGuest,
  pod: Pod,
): Promise<{ readonly outcome: string; readonly pod: Pod }> {
  const attempts = await startAttempts(pod, 'usurper', {
    spec: { Annotations: VSOCK_ALLOWED },
    mounts: [GUEST_PROC, bind('/tmp', '/guest/tmp')],
  })
  // The agent that dies answers no call.
  await attempts('usurp', '1024', '/guest/proc', `/guest/tmp/${OUTCOME}`).then(
    (output) => Promise.reject(new Error(`the agent lives: ${output}`)),
    () => {},
  )
  const connection = await connectAgent(guest.guest.link, guest.guest.vm.gone)
  // Also removes what the agent that died has left.
  const renewed = await createPod(agentOf(connection), guest.rootSource)
  const outcome = await renewed.output('look', `cat /guest/tmp/${OUTCOME}`, {
    mounts: [bind('/tmp', '/guest/tmp')],
  })
  return { outcome, pod: renewed }
}
