import { AgentError } from '../../base/errors.ts'
import type { ReadOutputRequest, ReadOutputResponse } from '../../gen/microvm/agent/v1/introspection.ts'
import type { IntrospectionContext } from './context.ts'

/** Throws INVALID_ARGUMENT without the container, NOT_FOUND without the process, FAILED_PRECONDITION without output. */
export function readOutput(
  { sandbox, restarts }: Pick<IntrospectionContext, 'sandbox' | 'restarts'>,
  { containerId, execId, stream, offset, len }: ReadOutputRequest,
): ReadOutputResponse {
  const { parts } = sandbox.containers.get(containerId, 'INVALID_ARGUMENT')
  const { stdio } = parts.processes.get(execId)
  if (stream !== 'stdout' && stream !== 'stderr') {
    throw new AgentError('INVALID_ARGUMENT', `stream: ${JSON.stringify(stream)}, want "stdout" or "stderr"`)
  }
  const { tail } = stdio[stream]
  if (tail === undefined) {
    throw new AgentError(
      'FAILED_PRECONDITION',
      `${stream}: not kept, because it ended before this agent started`,
    )
  }
  const kept = tail.read(Number(offset), len)
  const { offset: first, data, totalBytes } = kept
  return { offset: BigInt(first), data, totalBytes: BigInt(totalBytes), agentRestarts: restarts }
}
