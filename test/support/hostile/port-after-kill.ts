import { bind } from '../containers/container-requests.ts'
import type { Pod } from '../containers/pod.ts'
import { startAttempts, VSOCK_ALLOWED } from '../programs/vsock-attempts.ts'
import { GUEST_PROC } from '../vm/guest-pod.ts'

const OUTCOME = 'came-of-it'

/**
 * A container that may make vsock sockets kills the agent and binds the API's port at once. Returns the outcome. The next
 * agent continues with the pod over the same connection.
 */
export async function portAfterKill(pod: Pod): Promise<string> {
  const guestTmp = bind('/tmp', '/guest/tmp')
  const attempts = await startAttempts(pod, 'usurper', {
    spec: { Annotations: VSOCK_ALLOWED },
    mounts: [GUEST_PROC, guestTmp],
  })
  const file = `/guest/tmp/${OUTCOME}`
  const usurping = attempts('usurp', '1024', '/guest/proc', file)
  const outcome = await pod.output('look', `until test -s ${file}; do sleep 1; done; cat ${file}`, {
    mounts: [guestTmp],
  })
  await pod.remove('usurper')
  await usurping
  return outcome
}
