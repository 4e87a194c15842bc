import { abortable } from '../../base/abort.ts'
import { AgentError } from '../../base/errors.ts'
import type { SandboxContext } from '../sandbox/context.ts'
import type { Container, ContainerParts, LivingState } from './container.ts'

/** A change of a container as a whole. */
interface Change {
  readonly containerId: string
  /** The states in which it may be made; in others the call throws INTERNAL. */
  readonly from: readonly LivingState[]
  /** Does it, and says what the container is then. */
  readonly work: (parts: ContainerParts, container: Container) => Promise<LivingState | 'as before'>
}

/**
 * Changes a container as soon as no transition is under way, and as one itself. A change that fails leaves the
 * container what it was.
 */
export async function whileUpdating(
  context: SandboxContext,
  change: Change,
  signal: AbortSignal,
): Promise<void> {
  const container = context.containers.tryGet(change.containerId)
  if (container === undefined) throw unknownWhole()
  for (let wait = container.transition; wait !== undefined; wait = container.transition) {
    await abortable(wait, signal)
  }
  if (container.state.name === 'gone') throw unknownWhole()
  const { parts, before, end } = container.beginUpdate(change.from)
  let after = before
  try {
    const outcome = await change.work(parts, container)
    if (outcome !== 'as before') after = outcome
  } finally {
    end(after)
  }
}

/** What is answered by calls about a container as a whole (behaviour spec, section B.5). */
export function unknownWhole(): AgentError {
  return new AgentError('INVALID_ARGUMENT', 'invalid container id')
}
