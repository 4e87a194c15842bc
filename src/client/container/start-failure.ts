import { messageOf } from '../../base/errors.ts'

/** docker's exit statuses for a process that could not be started. */
export const START_FAILURE = {
  /** For any other reason. */
  cannotRun: 125,
  /** The program is there, but cannot be executed. */
  notExecutable: 126,
  /** There is no such program. */
  notFound: 127,
} as const

/** The exit status for the error of a call that was to start a process, by the agent's words for the program's fault. */
export function startFailureStatus(error: unknown): number {
  const text = messageOf(error)
  if (/^the file .* was not found: /s.test(text)) return START_FAILURE.notFound
  if (/^the file .* cannot be executed: /s.test(text)) return START_FAILURE.notExecutable
  return START_FAILURE.cannotRun
}
