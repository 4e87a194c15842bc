import { AgentError } from '../../../base/errors.ts'
import type { LifecycleDefinition } from '../../../gen/microvm/agent/v1/lifecycle.ts'
import type { SandboxContext } from '../../../handlers/sandbox/context.ts'
import { rename } from '../../../handlers/sandbox/rename.ts'
import type { Lifecycle } from '../../lifecycle/lifecycle.ts'
import type { Policy } from '../../policy/policy.ts'
import type { CallsInFlight } from '../calls-in-flight.ts'
import { cancellable, type ServiceMethods } from '../rpc.ts'

const RESUMED = 'microvm.agent.v1.Lifecycle/Resumed'

interface LifecycleDependencies {
  readonly lifecycle: Lifecycle
  readonly policy: Policy
  readonly sandbox: SandboxContext
}

export function lifecycleMethods(
  { lifecycle, policy, sandbox }: LifecycleDependencies,
  calls: Pick<CallsInFlight, 'list'>,
) {
  const checkResumed = policy.checkOf(RESUMED)
  const openCalls = () =>
    calls.list().map(({ incoming, containerId }) => ({ number: incoming.number ?? 0n, containerId }))
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
    rename: cancellable('journaled', (request, call) => rename(sandbox, request, call, openCalls)),
  } satisfies ServiceMethods<typeof LifecycleDefinition>
}

/** Whoever restores a guest can always make it ready. */
const FREE = { turn: 'brief', rule: 'none' } as const

function notYet(method: string): () => Promise<never> {
  return async () => {
    throw new AgentError('UNIMPLEMENTED', `${method}: not in this version of the agent`)
  }
}
