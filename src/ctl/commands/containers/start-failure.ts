import { AgentError, messageOf } from '../../../base/errors.ts'
import { startFailureStatus } from '../../../client/container/start-failure.ts'
import { callFailure } from '../../clients.ts'
import { CommandFailure } from '../../command.ts'

/** A process that could not be started, with docker's exit statuses for a program that is missing or none. */
export function startFailure(method: string, error: unknown): unknown {
  if (!(error instanceof AgentError)) return error
  const text = messageOf(callFailure(method, error))
  return new CommandFailure(startFailureStatus(error), text, { cause: error })
}
