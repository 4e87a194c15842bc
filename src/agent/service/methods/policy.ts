import type { AgentServiceDefinition } from '../../../gen/agent.ts'
import type { Policy } from '../../policy/policy.ts'
import { cancellable, type ServiceMethods } from '../rpc.ts'

/** The RPC of the policy (spec C.37), which checks itself: no other call comes between its check and the replacement. */
export function policyMethods(policy: Policy) {
  return {
    // Journaled: a second run would be checked against the policy that the first one has set.
    setPolicy: cancellable('journaled', (request, { signal }) => policy.replace(request, signal)),
  } satisfies Partial<ServiceMethods<typeof AgentServiceDefinition>>
}
