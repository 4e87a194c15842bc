import type { AgentServiceDefinition } from '../../../gen/agent.ts'
import type { Policy } from '../../policy/policy.ts'
import { type ServiceMethods, taking } from '../rpc.ts'

/** The RPC of the policy, which checks itself: no other call comes between its check and the replacement. */
export function policyMethods(policy: Policy) {
  return {
    // Journaled: a second run would be checked against the policy that the first one has set.
    setPolicy: taking((request, call) => policy.replace(request, call), { rule: 'itself' }),
  } satisfies Partial<ServiceMethods<typeof AgentServiceDefinition>>
}
