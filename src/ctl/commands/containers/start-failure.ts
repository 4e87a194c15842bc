import { AgentError, messageOf } from '../../../base/errors.ts'
import { startFailureStatus } from '../../../client/container/start-failure.ts'
import { callFailure } from '../../clients.ts'
import { CommandFailure } from '../../command.ts'

/** A failed start, with docker's exit statuses. */
export function startFailure(method: string, error: unknown): unknown {
  if (!(error instanceof AgentError)) return error
  const text = messageOf(callFailure(method, error))
  return new CommandFailure(startFailureStatus(error), text, { cause: error })
}
