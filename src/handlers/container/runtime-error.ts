import { AgentError } from '../../base/errors.ts'
import type { ToolResult } from '../../os/os.ts'

/** How runtimes say that the program to run is not there. */
const MISSING_FILE = [
  /exec: \\?"([^"\\]+)\\?": (?:executable file not found|stat .*: no such file or directory)/,
  /executable file [`'"]([^`'"]+)[`'"] not found/,
]

/**
 * What a failed run of the OCI runtime is answered with. `log` is the text of its JSON log, which tells more than
 * its exit code, and which is all there is when stderr belongs to the container. Callers look for the words
 * `the file X was not found` (behaviour spec, section B.6).
 */
export function runtimeError(what: string, result: ToolResult, log: string): AgentError {
  const reason = lastError(log) ?? (result.stderr.trim() || `exit code ${result.exitCode}`)
  const file = MISSING_FILE.map((pattern) => pattern.exec(reason)?.[1]).find((name) => name !== undefined)
  const message = `${what}: ${reason}`
  return new AgentError(
    'INTERNAL',
    file === undefined ? message : `the file ${file} was not found: ${message}`,
  )
}

/** The last message of level error in a runtime's log: those before it are its causes, and are told in it. */
export function lastError(log: string): string | undefined {
  return log
    .split('\n')
    .map(errorMessage)
    .findLast((message) => message !== undefined)
}

/** The message of a log line of level error; undefined for any other line, cut-off ones included. */
function errorMessage(line: string): string | undefined {
  try {
    const entry: unknown = JSON.parse(line)
    if (typeof entry !== 'object' || entry === null) return undefined
    if (!('level' in entry && entry.level === 'error' && 'msg' in entry)) return undefined
    return typeof entry.msg === 'string' ? entry.msg : undefined
  } catch {
    return undefined
  }
}
