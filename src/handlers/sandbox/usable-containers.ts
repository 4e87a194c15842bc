import { AgentError } from '../../base/errors.ts'
import type { SandboxContext } from './context.ts'

/**
 * The context of an operation on containers. Throws FAILED_PRECONDITION without vminit, which reports exits, and INTERNAL
 * `Dead agent: restarted` after a crash, because this agent has no record of the containers.
 */
export function usableContainers(context: SandboxContext): SandboxContext {
  const { os, sandboxState } = context
  if (os.exits.unavailable !== undefined) throw new AgentError('FAILED_PRECONDITION', os.exits.unavailable)
  sandboxState.refuseLost()
  return context
}
