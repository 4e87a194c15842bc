import { AgentError } from '../../base/errors.ts'
import type { Call } from '../../state/request.ts'
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

/** Lets functions serve calls with the containers of a context that {@link usableContainers} accepts. */
export function servedWith(context: SandboxContext) {
  return <Request, Response>(
    serve: (context: SandboxContext, request: Request, call: Call) => Promise<Response>,
  ) =>
    async (request: Request, call: Call): Promise<Response> =>
      serve(usableContainers(context), request, call)
}
