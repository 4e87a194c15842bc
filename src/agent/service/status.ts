import { AgentError, messageOf, type StatusCodeName } from '../../base/errors.ts'
import { truncate } from '../../base/truncate.ts'

/** What a failed call is answered with. */
export interface CallStatus {
  readonly code: StatusCodeName
  readonly message: string
}

/** A text may quote what the request held, or tell what a program wrote: more of it is for nobody to read. */
const LONGEST_CHARACTERS = 7000

/**
 * The only place where an error becomes a status. Anything that is not an `AgentError` is INTERNAL; causes are
 * appended unless the message tells them already (behaviour spec, B.5: text = error chain).
 */
export function statusOf(error: unknown): CallStatus {
  return {
    code: error instanceof AgentError ? error.code : 'INTERNAL',
    message: truncate(chainOf(error), LONGEST_CHARACTERS),
  }
}

function chainOf(error: unknown): string {
  let text = messageOf(error)
  let cause = error instanceof Error ? error.cause : undefined
  // Eight links are more than any real chain has; a cycle must not hang the reply.
  for (let depth = 0; cause !== undefined && depth < 8; depth++) {
    const next = messageOf(cause)
    if (!text.includes(next)) text = `${text}: ${next}`
    cause = cause instanceof Error ? cause.cause : undefined
  }
  return text
}
