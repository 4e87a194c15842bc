import { AgentError } from '../../base/errors.ts'

/** What the agent was started with; see {@link USAGE}. */
export interface AgentArguments {
  /** The connection to vminit, when vminit started this agent. */
  readonly channel: { readonly fd: number; readonly restarts: number } | undefined
  /** In charge of the guest's boot. */
  readonly init: boolean
  readonly configFile: string | undefined
  readonly serverAddress: string | undefined
  /** Only the version is asked for. */
  readonly version: boolean
}

/** Shown after a wrong argument. */
export const USAGE =
  'usage: agent [--version|-v] [--config|-c FILE] [--server-addr URI] [--channel FD --restarts N] [--init]'

/** Reads the agent's arguments. Throws INVALID_ARGUMENT naming the one that is wrong. */
export function parseArguments(argv: readonly string[]): AgentArguments {
  const values = new Map<string, string>()
  const rest = [...argv]
  for (let word = rest.shift(); word !== undefined; word = rest.shift()) {
    const name = LONG_NAMES.get(word) ?? word
    const kind = ARGUMENTS.get(name)
    if (kind === undefined) throw new AgentError('INVALID_ARGUMENT', `unknown argument ${word}`)
    values.set(name, kind === 'flag' ? '' : valueAfter(word, rest))
  }
  const fd = wholeNumber(values, '--channel')
  const restarts = wholeNumber(values, '--restarts') ?? 0
  return {
    channel: fd === undefined ? undefined : { fd, restarts },
    init: values.has('--init'),
    configFile: values.get('--config'),
    serverAddress: values.get('--server-addr'),
    version: values.has('--version'),
  }
}

const ARGUMENTS: ReadonlyMap<string, 'flag' | 'value'> = new Map([
  ['--version', 'flag'],
  ['--init', 'flag'],
  ['--config', 'value'],
  ['--server-addr', 'value'],
  ['--channel', 'value'],
  ['--restarts', 'value'],
])

const LONG_NAMES: ReadonlyMap<string, string> = new Map([
  ['-v', '--version'],
  ['-c', '--config'],
])

function valueAfter(name: string, rest: string[]): string {
  const value = rest.shift()
  if (value === undefined || value === '') throw new AgentError('INVALID_ARGUMENT', `${name} needs a value`)
  return value
}

function wholeNumber(values: ReadonlyMap<string, string>, name: string): number | undefined {
  const value = values.get(name)
  if (value === undefined) return undefined
  if (!/^\d{1,9}$/.test(value)) {
    throw new AgentError('INVALID_ARGUMENT', `${name} ${value}: not a whole number`)
  }
  return Number(value)
}
