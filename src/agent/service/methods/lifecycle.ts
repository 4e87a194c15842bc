import type { LifecycleDefinition } from '../../../gen/microvm/agent/v1/lifecycle.ts'
import type { Quiesce } from '../../../handlers/quiesce/quiesce.ts'
import type { SandboxContext } from '../../../handlers/sandbox/context.ts'
import { rename } from '../../../handlers/sandbox/rename.ts'
import type { Lifecycle } from '../../lifecycle/lifecycle.ts'
import type { Policy } from '../../policy/policy.ts'
import type { CallsInFlight } from '../calls-in-flight.ts'
import { cancellable, finishing, NO_DISK, type ServiceMethods } from '../rpc.ts'

const RESUMED = 'microvm.agent.v1.Lifecycle/Resumed'

interface LifecycleDependencies {
  readonly lifecycle: Lifecycle
  readonly policy: Policy
  readonly quiesce: Quiesce
  readonly sandbox: SandboxContext
}

export function lifecycleMethods(
  { lifecycle, policy, quiesce, sandbox }: LifecycleDependencies,
  calls: Pick<CallsInFlight, 'list'>,
) {
  const checkResumed = policy.checkOf(RESUMED)
  const openCalls = () =>
    calls.list().map(({ incoming, containerId }) => ({ number: incoming.number ?? 0n, containerId }))
  return {
    // Not queued behind other work: it refuses what works.
    detach: cancellable('idempotent', (request) => lifecycle.detach(request), {
      ...NO_DISK,
      turn: 'brief',
      key: 'refused',
    }),
    attach: cancellable('idempotent', (request) => lifecycle.attach(request), FREE),
    listStreams: cancellable('read', async () => lifecycle.listStreams(), { turn: 'brief' }),
    resumed: cancellable(
      'idempotent',
      async (request, call) => {
        // The seed is not for the log of inputs.
        if (request.identity !== undefined) await checkResumed({ ...request, seed: new Uint8Array() }, call)
        return lifecycle.resumed(request, call)
      },
      { ...NO_DISK, turn: 'brief', rule: 'itself' },
    ),
    getResume: cancellable('read', (request, { signal }) => lifecycle.getResume(request, signal), {
      rule: 'none',
      turn: 'wait',
    }),
    // An agent that dies leaves a pod that runs.
    quiesce: cancellable('idempotent', (request, call) => quiesce.quiesce(request, call), {
      ...NO_DISK,
      turn: 'wait',
      key: 'refused',
    }),
    thaw: finishing('idempotent', () => quiesce.thaw(), FREE),
    rename: cancellable('journaled', (request, call) => rename(sandbox, request, call, openCalls)),
  } satisfies ServiceMethods<typeof LifecycleDefinition>
}

/** Whoever restores a guest can always make it ready. An outcome of before says nothing of now, so none takes a key. */
const FREE = { ...NO_DISK, turn: 'brief', rule: 'none', key: 'refused' } as const
