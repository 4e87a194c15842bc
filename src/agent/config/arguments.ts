import { parseArgs } from 'node:util'
import { AgentError } from '../../base/errors.ts'
import type { VminitChannel } from '../../os/supervisor/vminit.ts'

/** What an agent is started with that serves. */
export interface AgentArguments {
  /** The connection to vminit. */
  readonly channel: VminitChannel & { readonly restarts: number }
  /** The control socket of the connection broker. */
  readonly broker: number
  /** The agent boots the guest. */
  readonly init: boolean
  readonly configFile: string | undefined
  readonly serverAddress: string | undefined
}

/** What to print before an exit: the version, or the state that an agent after this one would go on with. */
type Print = { readonly print: 'version' | 'state' }

/** Printed before the sentence about a wrong argument. */
export const USAGE =
  'usage: vminit -- agent [--config|-c FILE] [--server-addr URI]\n       agent --version|-v|--print-state'

/**
 * Parses the agent's arguments, of which `vminit` appends some. Throws INVALID_ARGUMENT naming the one that is wrong, and
 * FAILED_PRECONDITION for an agent that is to serve and that `vminit` has not started.
 */
export function parseArguments(argv: readonly string[]): AgentArguments | Print {
  const flags = new Map<string, string>()
  const { tokens } = parseArgs({ args: [...argv], options: OPTIONS, strict: false, tokens: true })
  for (const token of tokens) {
    const type = token.kind === 'option' ? TYPES.get(token.name) : undefined
    if (token.kind !== 'option' || type === undefined) throw invalid(`unknown argument ${argv[token.index]}`)
    if (type === 'string' && !token.value) throw invalid(`${token.rawName} needs a value`)
    if (type === 'boolean' && token.value !== undefined) throw invalid(`${token.rawName} takes no value`)
    flags.set(token.name, token.value ?? '')
  }
  const fd = wholeNumber(flags, 'channel')
  const broker = wholeNumber(flags, 'broker')
  const restarts = wholeNumber(flags, 'restarts') ?? 0
  const storedList = wholeNumber(flags, 'stored-list')
  if (flags.has('version')) return { print: 'version' }
  if (flags.has('print-state')) return { print: 'state' }
  if (fd === undefined || broker === undefined) {
    throw new AgentError('FAILED_PRECONDITION', 'not started by vminit, want `vminit -- agent …`')
  }
  return {
    channel: { fd, restarts, storedList },
    broker,
    init: flags.has('init'),
    configFile: flags.get('config'),
    serverAddress: flags.get('server-addr'),
  }
}

const OPTIONS = {
  version: { type: 'boolean', short: 'v' },
  'print-state': { type: 'boolean' },
  init: { type: 'boolean' },
  config: { type: 'string', short: 'c' },
  'server-addr': { type: 'string' },
  channel: { type: 'string' },
  broker: { type: 'string' },
  restarts: { type: 'string' },
  'stored-list': { type: 'string' },
} as const

const TYPES: ReadonlyMap<string, 'boolean' | 'string'> = new Map(
  Object.entries(OPTIONS).map(([name, { type }]) => [name, type]),
)

/** A wrong argument of the agent. */
export class WrongArgument extends AgentError {}

function invalid(message: string): AgentError {
  return new WrongArgument('INVALID_ARGUMENT', message)
}

function wholeNumber(flags: ReadonlyMap<string, string>, name: string): number | undefined {
  const value = flags.get(name)
  if (value === undefined) return undefined
  if (!/^\d{1,9}$/.test(value)) throw invalid(`--${name} ${value}: not a whole number`)
  return Number(value)
}
