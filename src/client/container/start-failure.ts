import { messageOf } from '../../base/errors.ts'

/** docker's exit statuses for a process that could not be started. */
export const START_FAILURE = {
  cannotRun: 125,
  notExecutable: 126,
  notFound: 127,
} as const

/** The exit status for a failed start, taken from the agent's error text. */
export function startFailureStatus(error: unknown): number {
  const text = messageOf(error)
  if (/^the file .* was not found: /s.test(text)) return START_FAILURE.notFound
  if (/^the file .* cannot be executed: /s.test(text)) return START_FAILURE.notExecutable
  return START_FAILURE.cannotRun
}
