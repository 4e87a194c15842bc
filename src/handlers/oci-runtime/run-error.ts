import { AgentError, messageOf } from '../../base/errors.ts'
import type { Hook, Hooks } from '../../gen/oci.ts'
import type { ToolResult } from '../../os/process/tools.ts'

/** Errors of runc and crun about the program to run, and the words for callers. */
const PROGRAM_FAULTS: readonly { readonly said: RegExp; readonly told: string }[] = [
  {
    said: /\bexec: .*: (?:executable file not found|stat .*: (?:no such file or|not a) directory)/s,
    told: 'was not found',
  },
  { said: /^executable file .* not found/s, told: 'was not found' },
  {
    said: /\bexec: ".*": (?:(?:stat .*: )?permission denied|is a directory)$/s,
    told: 'cannot be executed',
  },
  {
    said: /^the path .* (?:exists but it is not executable|is not a regular file)/s,
    told: 'cannot be executed',
  },
]

/**
 * The error of a failed run. The runtime's JSON `log` says more than the exit code, and is the only text when stderr belongs
 * to the container. Callers look for the words `the file X was not found`, where X is `program`.
 */
export function runError(failure: {
  readonly what: string
  readonly result: ToolResult
  readonly log: string
  readonly program: string | undefined
}): AgentError {
  const { what, result, log, program } = failure
  const reason = lastError(log) ?? (result.stderr.trim() || `exit code ${result.exitCode}`)
  const told = program === undefined ? undefined : faultOf(program, reason)
  if (told === undefined) return new AgentError('INTERNAL', `${what}: ${reason}`)
  return new AgentError('INTERNAL', `the file ${program} ${told}: ${what}: ${reason}`, { fault: 'caller' })
}

function faultOf(program: string, reason: string): string | undefined {
  // crun reports other files in the same words.
  if (reason === `open \`${program}\`: Not a directory`) return 'was not found'
  return PROGRAM_FAULTS.find(({ said }) => said.test(reason))?.told
}

/** The last error of a runtime's log contains the earlier ones, which are its causes. Entries of crun take several lines. */
export function lastError(log: string): string | undefined {
  if (log === '') return undefined
  return log
    .split(/^(?=\{)/m)
    .map(errorMessage)
    .findLast((message) => message !== undefined)
}

/** The message of a log entry of level error; undefined for any other text, such as a cut-off entry. */
function errorMessage(text: string): string | undefined {
  try {
    const entry: unknown = JSON.parse(text)
    if (typeof entry !== 'object' || entry === null) return undefined
    if (!('level' in entry && entry.level === 'error' && 'msg' in entry)) return undefined
    return typeof entry.msg === 'string' ? entry.msg : undefined
  } catch {
    return undefined
  }
}

const HOOKS_OF_CREATE = {
  prestart: 'Prestart',
  createRuntime: 'CreateRuntime',
  createContainer: 'CreateContainer',
} as const satisfies Readonly<Record<string, keyof Hooks>>

/** Adds the paths of the hooks that may have failed: runc reports a hook's index, and the list only since 1.3. */
export function namingHooks(error: unknown, hooks: Hooks | undefined): unknown {
  const [, only, place] = /\brunning (?:(\w+) )?hook #(\d+)/.exec(messageOf(error)) ?? []
  if (place === undefined || !(error instanceof AgentError)) return error
  const named = Object.entries(HOOKS_OF_CREATE).flatMap(([kind, list]) => {
    if (only !== undefined && only !== kind) return []
    const hook: Hook | undefined = hooks?.[list][Number(place)]
    return hook === undefined ? [] : [`${kind} ${hook.Path}`]
  })
  if (named.length === 0) return error
  return new AgentError(error.code, `${error.message.trimEnd()} (hook #${place}: ${named.join(' or ')})`)
}
