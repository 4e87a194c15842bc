import { AgentError, messageOf, type StatusCodeName } from '../../base/errors.ts'

/** What a failed call is answered with. */
export interface CallStatus {
  readonly code: StatusCodeName
  readonly message: string
}

/** Clients of gRPC take some 8 KiB of trailers, and lose the whole status when there is more. */
const LONGEST_BYTES = 7000

/** How much of the end of a longer text is kept: the kernel's word is there. */
const KEPT_OF_END = 1000

/**
 * The only place where an error becomes a status. Anything that is not an `AgentError` is INTERNAL; causes are
 * appended unless the message tells them already (behaviour spec, B.5: text = error chain).
 */
export function statusOf(error: unknown): CallStatus {
  return { code: error instanceof AgentError ? error.code : 'INTERNAL', message: bounded(chainOf(error)) }
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

/** A text may quote what the request held, or tell what a program wrote. */
function bounded(text: string): string {
  if (Buffer.byteLength(text) <= LONGEST_BYTES) return text
  const bytes = Buffer.from(text)
  const begin = bytes.subarray(0, LONGEST_BYTES - KEPT_OF_END).toString()
  return `${begin} […] ${bytes.subarray(-KEPT_OF_END).toString()}`
}
