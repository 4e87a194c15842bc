import { AgentError, messageOf } from '../../base/errors.ts'
import type { Hook, Hooks } from '../../gen/oci.ts'
import type { ToolResult } from '../../os/process/tools.ts'

/** How runtimes say what is wrong with the program to run, and how callers are told; runc first, then crun. */
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
 * The error for a failed run of the OCI runtime. `log` is the text of its JSON log, which tells more than its exit
 * code, and which is all there is when stderr belongs to the container. `program` is the one to be run in the
 * container, if any: callers look for the words `the file X was not found`.
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
  // crun says the same of other files.
  if (reason === `open \`${program}\`: Not a directory`) return 'was not found'
  return PROGRAM_FAULTS.find(({ said }) => said.test(reason))?.told
}

/**
 * The last message of level error in a runtime's log: those before it are its causes, and are told in it. Each entry begins
 * on a line of its own; those of crun take several.
 */
export function lastError(log: string): string | undefined {
  return log
    .split(/^(?=\{)/m)
    .map(errorMessage)
    .findLast((message) => message !== undefined)
}

/** The message of a log entry of level error; undefined for any other text, cut-off entries included. */
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

/** The kinds of hooks that run before a container is created, by their names in a configuration. */
const HOOKS_OF_CREATE = {
  prestart: 'Prestart',
  createRuntime: 'CreateRuntime',
  createContainer: 'CreateContainer',
} as const satisfies Readonly<Record<string, keyof Hooks>>

/**
 * The error of a failed `create`, with the paths of the container's hooks when a hook has failed: runc tells a hook's place
 * in its list, and before 1.3 not which list. Any other error stays as it is.
 */
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
