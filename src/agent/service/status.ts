import { AgentError, messageOf, type StatusCodeName } from '../../base/errors.ts'
import { truncate } from '../../base/truncate.ts'

/** The status of a failed call. */
export interface CallStatus {
  readonly code: StatusCodeName
  readonly message: string
}

/** A text may quote the request, or the output of a program. */
const LONGEST_CHARACTERS = 7000

/**
 * The status of an error: the only place where one becomes the other. Anything that is not an `AgentError` is INTERNAL.
 * Causes are appended unless the message has their text already.
 */
export function statusOf(error: unknown): CallStatus {
  return {
    code: error instanceof AgentError ? error.code : 'INTERNAL',
    message: truncate(chainOf(error), LONGEST_CHARACTERS),
  }
}

/**
 * The level of a failed call's log line: a warning when the caller has made a mistake, an error when the guest has failed;
 * undefined when it has ended as such calls do.
 */
export function failureLevel(error: unknown): 'warn' | 'error' | undefined {
  const fault = error instanceof AgentError ? error.fault : 'guest'
  if (fault === 'none') return undefined
  return fault === 'caller' ? 'warn' : 'error'
}

function chainOf(error: unknown): string {
  let text = messageOf(error)
  let cause = error instanceof Error ? error.cause : undefined
  // No real chain has eight links; a cycle must not hang the answer.
  for (let depth = 0; cause !== undefined && depth < 8; depth++) {
    const next = messageOf(cause)
    if (!text.includes(next)) text = `${text}: ${next}`
    cause = cause instanceof Error ? cause.cause : undefined
  }
  return text
}
