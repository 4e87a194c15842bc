import { bind } from '../containers/container-requests.ts'
import type { Pod } from '../containers/pod.ts'
import { startAttempts, VSOCK_ALLOWED } from '../programs/vsock-attempts.ts'
import { GUEST_PROC } from '../vm/guest-pod.ts'

const OUTCOME = 'came-of-it'

/**
 * Has a container that may make vsock sockets kill the agent and bind the API's port at once. Returns what that came to.
 * The next agent goes on with the pod, over the connection that there was.
 */
export async function portAfterKill(pod: Pod): Promise<string> {
  const guestTmp = bind('/tmp', '/guest/tmp')
  const attempts = await startAttempts(pod, 'usurper', {
    spec: { Annotations: VSOCK_ALLOWED },
    mounts: [GUEST_PROC, guestTmp],
  })
  const file = `/guest/tmp/${OUTCOME}`
  // It tries until it is killed.
  const usurping = attempts('usurp', '1024', '/guest/proc', file)
  const outcome = await pod.output('look', `until test -s ${file}; do sleep 1; done; cat ${file}`, {
    mounts: [guestTmp],
  })
  await pod.remove('usurper')
  await usurping
  return outcome
}
