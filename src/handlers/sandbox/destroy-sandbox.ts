import { abortable } from '../../base/abort.ts'
import { removeSettled } from '../container/remove-container.ts'
import type { SandboxContext } from './context.ts'

/**
 * DestroySandbox (behaviour spec, section C.26): removes all containers, then takes away what CreateSandbox set up.
 * A container that cannot be removed fails the call, and the sandbox stays.
 */
export async function destroySandbox(context: SandboxContext, signal: AbortSignal): Promise<void> {
  const { sandboxState } = context
  for (let wait = sandboxState.transition; wait !== undefined; wait = sandboxState.transition)
    await abortable(wait, signal)
  const transition = sandboxState.beginDestroy()
  try {
    await context.cleanUpAfterCrash()
    await removeAll(context, signal)
  } catch (error) {
    transition.failed()
    throw error
  }
  await transition.sandbox?.setUp.run()
  context.oom.queue.close()
  transition.destroyed()
  context.onDestroyed()
}

/** Tries each, so that one that fails leaves no other behind. Throws the first failure. */
async function removeAll(context: SandboxContext, signal: AbortSignal): Promise<void> {
  const removals = context.containers
    .list()
    .map((container) => removeSettled({ context, container, signal, timeoutSeconds: 0 }))
  for (const removal of await Promise.allSettled(removals)) {
    if (removal.status === 'rejected') throw removal.reason
  }
}
