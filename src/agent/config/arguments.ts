import { parseArgs } from 'node:util'
import { AgentError } from '../../base/errors.ts'
import type { VminitChannel } from '../../os/supervisor/vminit.ts'

/** The agent's arguments; see {@link USAGE}. */
export interface AgentArguments {
  /** The connection to vminit; undefined when something else started the agent. */
  readonly channel: (VminitChannel & { readonly restarts: number }) | undefined
  /** The control socket of the connection broker; undefined when the agent accepts connections itself. */
  readonly broker: number | undefined
  /** The agent boots the guest. */
  readonly init: boolean
  readonly configFile: string | undefined
  readonly serverAddress: string | undefined
  /** Print the version and exit. */
  readonly version: boolean
  /** Print the state that an agent after this one would go on with, and exit. */
  readonly printState: boolean
}

/** Printed before the sentence about a wrong argument. */
export const USAGE =
  'usage: agent [--version|-v] [--print-state] [--config|-c FILE] [--server-addr URI] [--channel FD --restarts N [--stored-list FD]] [--broker FD] [--init]'

/** Parses the agent's arguments. Throws INVALID_ARGUMENT naming the one that is wrong. */
export function parseArguments(argv: readonly string[]): AgentArguments {
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
  const restarts = wholeNumber(flags, 'restarts') ?? 0
  const storedList = wholeNumber(flags, 'stored-list')
  return {
    channel: fd === undefined ? undefined : { fd, restarts, storedList },
    broker: wholeNumber(flags, 'broker'),
    init: flags.has('init'),
    configFile: flags.get('config'),
    serverAddress: flags.get('server-addr'),
    version: flags.has('version'),
    printState: flags.has('print-state'),
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
