import { AgentError, StatusCode, type StatusCodeName } from '../../../base/errors.ts'
import type { HeldChild } from './holder.ts'

const VERSION = '1'

/** LINE_BYTES_MAX of native/holder/limits.h, with the newline. */
const LONGEST_LINE = 131_072

/** Who holds; its pid and start time are those of /proc. */
export interface Greeting {
  readonly pid: number
  readonly startTime: string
}

/** Throws the error that a greeting tells, and FAILED_PRECONDITION for one of another version. */
export function parseGreeting(
  [protocol, version, pid = '', startTime = '']: readonly string[],
  path: string,
): Greeting {
  if (protocol === 'error') checked([protocol, version ?? '', pid])
  if (protocol !== 'holder' || version !== VERSION) {
    throw new AgentError('FAILED_PRECONDITION', `${path}: version ${version}, want ${VERSION}`)
  }
  return { pid: Number(pid), startTime }
}

/** The command as a line, whose words are encoded. Throws INVALID_ARGUMENT for one that a holder would not take. */
export function commandLine(command: readonly string[]): string {
  const line = `${command.map(encodeURIComponent).join(' ')}\n`
  if (line.length <= LONGEST_LINE) return line
  throw new AgentError(
    'INVALID_ARGUMENT',
    `${command[0]}: ${line.length} bytes, want ${LONGEST_LINE} at most`,
  )
}

/** The words of a line. Throws for a wrong %. */
export function words(line: string): string[] {
  return line.split(' ').map(decodeURIComponent)
}

/** Returns the words of an answer, or throws the error that it tells. */
export function checked(line: string[]): string[] {
  const [kind, code = '', text = ''] = line
  if (kind === 'ok') return line
  throw new AgentError(isCode(code) ? code : 'INTERNAL', `holder: ${text}`)
}

function isCode(word: string): word is StatusCodeName {
  return word in StatusCode
}

/** NAME PID running, NAME PID exited STATUS, or NAME PID killed SIGNAL. */
export function parseChild([name = '', pid, state, number]: readonly string[]): HeldChild {
  const code = state === 'exited' ? Number(number) : undefined
  const signal = state === 'killed' ? Number(number) : undefined
  return { name, pid: Number(pid), exit: state === 'running' ? undefined : { code, signal } }
}
