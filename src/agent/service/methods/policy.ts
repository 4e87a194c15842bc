import type { AgentServiceDefinition } from '../../../gen/agent.ts'
import type { Policy } from '../../policy/policy.ts'
import { NO_DISK, type ServiceMethods, taking } from '../rpc.ts'

/** SetPolicy checks itself, so that no other call runs between its check and the replacement. */
export function policyMethods(policy: Policy) {
  return {
    // Journaled, because a repeated call would be checked against the policy that it has set.
    setPolicy: taking((request, call) => policy.replace(request, call), {
      ...NO_DISK,
      rule: 'itself',
      key: 'goes on',
    }),
  } satisfies Partial<ServiceMethods<typeof AgentServiceDefinition>>
}
