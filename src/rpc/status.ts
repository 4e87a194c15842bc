import { AgentError, messageOf, type Reason, type StatusCodeName } from '../base/errors.ts'
import { truncate } from '../base/truncate.ts'

export interface CallStatus {
  readonly code: StatusCodeName
  readonly message: string
  readonly reason?: Reason
}

/** A text may quote the request, or the output of a program. */
const LONGEST_CHARACTERS = 7000

/** Errors become statuses only here. Other errors than `AgentError` are INTERNAL. Causes are appended once. */
export function statusOf(error: unknown): CallStatus {
  return {
    code: error instanceof AgentError ? error.code : 'INTERNAL',
    message: truncate(chainOf(error), LONGEST_CHARACTERS),
    ...(error instanceof AgentError && error.reason !== undefined && { reason: error.reason }),
  }
}

/** A warning for a mistake of the caller, an error for a failure of the guest; undefined for a normal end. */
export function failureLevel(error: unknown): 'warn' | 'error' | undefined {
  const fault = error instanceof AgentError ? error.fault : 'guest'
  if (fault === 'none') return undefined
  return fault === 'caller' ? 'warn' : 'error'
}

function chainOf(error: unknown): string {
  let text = messageOf(error)
  let cause = error instanceof Error ? error.cause : undefined
  // The limit ends a cycle of causes; no real chain has eight links.
  for (let depth = 0; cause !== undefined && depth < 8; depth++) {
    const next = messageOf(cause)
    if (!text.includes(next)) text = `${text}: ${next}`
    cause = cause instanceof Error ? cause.cause : undefined
  }
  return text
}
