import { AgentError } from '../../../base/errors.ts'
import type { LifecycleDefinition } from '../../../gen/microvm/agent/v1/lifecycle.ts'
import type { Lifecycle } from '../../lifecycle/lifecycle.ts'
import type { Policy } from '../../policy/policy.ts'
import { cancellable, type ServiceMethods } from '../rpc.ts'

const RESUMED = 'microvm.agent.v1.Lifecycle/Resumed'

export function lifecycleMethods(lifecycle: Lifecycle, policy: Policy) {
  const checkResumed = policy.checkOf(RESUMED)
  return {
    // Not queued behind other work: it refuses what works.
    detach: cancellable('idempotent', (request) => lifecycle.detach(request), { turn: 'brief' }),
    attach: cancellable('idempotent', (request) => lifecycle.attach(request), FREE),
    resumed: cancellable(
      'idempotent',
      async (request, call) => {
        // The seed is not for the log of inputs.
        if (request.identity !== undefined) await checkResumed({ ...request, seed: new Uint8Array() }, call)
        return lifecycle.resumed(request, call)
      },
      { turn: 'brief', rule: 'itself' },
    ),
    getResume: cancellable('read', (request, { signal }) => lifecycle.getResume(request, signal), {
      rule: 'none',
      turn: 'wait',
    }),
    quiesce: cancellable<unknown, never>('idempotent', notYet('Quiesce')),
    thaw: cancellable<unknown, never>('idempotent', notYet('Thaw'), { rule: 'none' }),
    rename: cancellable<unknown, never>('idempotent', notYet('Rename')),
  } satisfies ServiceMethods<typeof LifecycleDefinition>
}

/** Whoever restores a guest can always make it ready. */
const FREE = { turn: 'brief', rule: 'none' } as const

function notYet(method: string): () => Promise<never> {
  return async () => {
    throw new AgentError('UNIMPLEMENTED', `${method}: not in this version of the agent`)
  }
}
