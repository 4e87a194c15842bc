import { parseArgs } from 'node:util'
import { AgentError } from '../../base/errors.ts'
import type { VminitChannel } from '../../os/supervisor/vminit.ts'

export interface AgentArguments {
  readonly channel: VminitChannel & { readonly restarts: number }
  /** Descriptor of the connection broker's control socket. */
  readonly broker: number
  /** The agent boots the guest. */
  readonly init: boolean
  readonly configFile: string | undefined
  readonly serverAddress: string | undefined
}

/** `state` is the state that the next agent would restore. */
type Print = { readonly print: 'version' | 'state' }

export const USAGE =
  'usage: vminit -- agent [--config|-c FILE] [--server-addr URI]\n       agent --version|-v|--print-state'

/** Throws INVALID_ARGUMENT for a wrong argument, FAILED_PRECONDITION for an agent that `vminit` has not started. */
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
