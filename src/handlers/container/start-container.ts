import { abortable } from '../../base/abort.ts'
import type { StartContainerRequest } from '../../gen/agent.ts'
import type { SandboxContext } from '../sandbox/context.ts'
import { runPoststartHooks } from './poststart-hooks.ts'

/**
 * StartContainer (behaviour spec, section C.2): lets the first process go on, then runs the poststart hooks. Waits for a
 * creation or an adjustment in progress.
 */
export async function startContainer(
  context: SandboxContext,
  request: StartContainerRequest,
  signal: AbortSignal,
): Promise<void> {
  const { container } = await context.containers.waitFor(request.containerId, 'INTERNAL', signal)
  while (container.state.name === 'updating') await abortable(container.state.settled, signal)
  const { parts, hurried } = container.beginStart()
  let succeeded = false
  try {
    // The sandbox's own container does nothing but hold namespaces.
    if (container.id !== context.sandboxState.active().id) await context.oom.watch(container.id, parts)
    await context.runtime.start(container.id)
    await runPoststartHooks(context, container.id, parts, hurried)
    succeeded = true
  } finally {
    if (!succeeded) await context.oom.end(container.id)
    container.endStart(parts, succeeded)
  }
}
