import type { DestroySandboxRequest } from '../../gen/agent.ts'
import { type Call, NO_CALLER } from '../../state/request.ts'
import { endAndRemove } from '../container/remove-container.ts'
import type { SandboxContext } from './context.ts'
import { Phase, SandboxRecord } from './sandbox-record.ts'

/**
 * DestroySandbox: removes all containers, then undoes CreateSandbox. If a container cannot be removed, the call fails and the
 * sandbox stays. If a part of the set-up, such as a mount, cannot be undone, the call fails, but the sandbox is gone.
 */
export async function destroySandbox(
  context: SandboxContext,
  _request: DestroySandboxRequest,
  { signal, number }: Call,
): Promise<void> {
  const { sandboxState } = context
  const transition = await sandboxState.beginDestroy(signal)
  let isUndone = false
  try {
    transition.sandbox?.record.save({ phase: Phase.DESTROYING, request: number })
    await removeAll(context, signal)
    // An open file would keep its file system mounted.
    await context.fileCopies.dropAll()
    const failures = (await transition.sandbox?.onDestroy.runAll()) ?? []
    isUndone = true
    if (failures.length > 0) throw failures[0]
    if (context.containers.list().length === 0) await context.containersCgroup.remove()
    context.oom.queue.close()
    const record = transition.sandbox?.record ?? new SandboxRecord(context.state)
    record.save({ phase: Phase.DESTROYED, request: number })
    if (context.containers.list().length === 0) context.containers.names.clear()
  } catch (error) {
    transition.failed(isUndone)
    throw error
  }
  transition.destroyed()
  context.onDestroyed()
}

/** Tries to remove every container, then throws the first failure. */
async function removeAll(context: SandboxContext, signal: AbortSignal): Promise<void> {
  const call = { ...NO_CALLER, signal }
  const removals = context.containers.list().map((container) => endAndRemove(context, container, call))
  for (const removal of await Promise.allSettled(removals)) {
    if (removal.status === 'rejected') throw removal.reason
  }
}
