import type { Call } from '../../state/request.ts'
import type { SandboxContext } from './context.ts'

/** Throws INTERNAL `Dead agent: restarted` when the sandbox is lost, because this agent has no record of its containers. */
export function usableContainers(context: SandboxContext): SandboxContext {
  context.sandboxState.refuseLost()
  return context
}

/** Adapts functions that need the context to calls, which fail like {@link usableContainers}. */
export function servedWith(context: SandboxContext) {
  return <Request, Response>(
    serve: (context: SandboxContext, request: Request, call: Call) => Promise<Response>,
  ) =>
    async (request: Request, call: Call): Promise<Response> =>
      serve(usableContainers(context), request, call)
}
