import type { Call } from '../../state/request.ts'
import type { SandboxContext } from './context.ts'

/**
 * The context of an operation on containers. Throws INTERNAL `Dead agent: restarted` after a crash, because this agent has no
 * record of the containers.
 */
export function usableContainers(context: SandboxContext): SandboxContext {
  context.sandboxState.refuseLost()
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
