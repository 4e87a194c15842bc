import { AgentError } from '../../../base/errors.ts'
import type { LifecycleDefinition } from '../../../gen/microvm/agent/v1/lifecycle.ts'
import { cancellable, type ServiceMethods } from '../rpc.ts'

export function lifecycleMethods() {
  return {
    detach: cancellable<unknown, never>('idempotent', notYet('Detach')),
    attach: cancellable<unknown, never>('idempotent', notYet('Attach'), { rule: 'none' }),
    resumed: cancellable<unknown, never>('idempotent', notYet('Resumed'), { rule: 'none' }),
    getResume: cancellable<unknown, never>('read', notYet('GetResume'), { rule: 'none', turn: 'wait' }),
    quiesce: cancellable<unknown, never>('idempotent', notYet('Quiesce')),
    thaw: cancellable<unknown, never>('idempotent', notYet('Thaw'), { rule: 'none' }),
    rename: cancellable<unknown, never>('idempotent', notYet('Rename')),
  } satisfies ServiceMethods<typeof LifecycleDefinition>
}

function notYet(method: string): () => Promise<never> {
  return async () => {
    throw new AgentError('UNIMPLEMENTED', `${method}: not in this version of the agent`)
  }
}
