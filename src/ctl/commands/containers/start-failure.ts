import { AgentError } from '../../../base/errors.ts'
import { lacksProgram } from '../../../client/container-program.ts'
import { callFailure } from '../../clients.ts'
import { CommandFailure, EXIT } from '../../command.ts'

/** A process that could not be started, with docker's exit statuses for a program that is missing or none. */
export function startFailure(method: string, error: unknown): unknown {
  if (!(error instanceof AgentError)) return error
  const failure = callFailure(method, error)
  const text = failure instanceof Error ? failure.message : String(failure)
  if (lacksProgram(error)) return new CommandFailure(EXIT.notFound, text)
  if (/the file .* cannot be executed/s.test(error.message))
    return new CommandFailure(EXIT.notExecutable, text)
  return new CommandFailure(EXIT.cannotRun, text, { cause: error })
}
