import { type ParseArgsConfig, parseArgs } from 'node:util'
import { didYouMean, normalized } from '../../base/suggest.mjs'
import { type Argument, type Command, type Option, UsageError, Values } from '../command.ts'
import { GLOBAL_OPTIONS } from './options.ts'

/** A command line without the name of the tool. */
export type CommandLine =
  /** Help of a command, or of the tool; `words` are the other words of the command. */
  | { readonly kind: 'help'; readonly command: Command | undefined; readonly words: readonly string[] }
  | { readonly kind: 'version' }
  | { readonly kind: 'command'; readonly command: Command; readonly values: Values }

type Found = Map<string, string[]>

/** Parses a command line. A first word that is no command, but one of `methods`, is one of `call`. Throws {@link UsageError}. */
export function parseCommandLine(
  argv: readonly string[],
  commands: readonly Command[],
  methods: readonly string[],
): CommandLine {
  const options: Found = new Map()
  const words = readWords(argv, [...GLOBAL_OPTIONS, VERSION], options, {
    tool: 'agent-ctl',
    isLast: () => true,
  })
  if (options.has(VERSION.name)) return { kind: 'version' }
  const [first] = words
  if (first === undefined) return { kind: 'help', command: undefined, words: [] }
  const command = commandOf(first, words, commands, methods)
  const positional = readWords(words, [...(command.options ?? []), ...GLOBAL_OPTIONS], options, {
    tool: `agent-ctl ${command.name}`,
    isLast: (index) => argumentAt(command, index)?.verbatim === true,
  })
  if (options.has('help')) return { kind: 'help', command, words: positional }
  return { kind: 'command', command, values: new Values(options, namedArguments(command, positional)) }
}

const VERSION: Option = { name: 'version', short: 'V', summary: '' }

/** The command of the next words, which are taken; the word of a method stays. */
function commandOf(
  first: string,
  words: string[],
  commands: readonly Command[],
  methods: readonly string[],
): Command {
  const single = commands.find(({ name }) => name === first)
  if (single !== undefined) {
    words.shift()
    return single
  }
  const below = commands.filter(({ name }) => name.startsWith(`${first} `))
  if (below.length > 0) {
    words.shift()
    const second = words.shift()
    const found = below.find(({ name }) => name === `${first} ${second}`)
    if (found !== undefined) return found
    const choices = below.map(({ name }) => name.slice(first.length + 1))
    if (second === undefined || second.startsWith('-'))
      throw new UsageError(`${first}: no command, want one of ${choices.join(', ')}`)
    throw new UsageError(`${first}: unknown command "${second}", want one of ${choices.join(', ')}`)
  }
  const call = commands.find(({ name }) => name === 'call')
  const method = normalized(first.replace(/^.*[/]/, ''))
  if (call !== undefined && methods.some((each) => normalized(each) === method)) return call
  const names = [...commands.map(({ name }) => name), ...methods]
  throw new UsageError(`unknown command "${first}"${didYouMean(first, names, 'see agent-ctl --help')}`)
}

/** Reads options up to `--` or the last word that the tool reads. Returns all words that are no options. */
function readWords(
  words: readonly string[],
  known: readonly Option[],
  found: Found,
  { tool, isLast }: { readonly tool: string; readonly isLast: (index: number) => boolean },
): string[] {
  const positional: string[] = []
  const tokens = tokensOf(words, known)
  for (let token = tokens.shift(); token !== undefined; token = tokens.shift()) {
    if (token.kind === 'option-terminator') return [...positional, ...words.slice(token.index + 1)]
    if (token.kind === 'option') {
      const option = known.find(({ name, short, alias }) => [name, short, alias].includes(token.name))
      if (option === undefined) throw unknownOption(token.rawName, known, tool)
      add(option, valuesOf(option, token, tokens), found)
    } else {
      positional.push(token.value)
      if (isLast(positional.length - 1)) return [...positional, ...words.slice(token.index + 1)]
    }
  }
  return positional
}

type Tokens = ReturnType<typeof tokensOf>
type OptionToken = Extract<Tokens[number], { kind: 'option' }>

/** The words as `parseArgs` of Node sees them. It finds no optional values. */
function tokensOf(words: readonly string[], known: readonly Option[]) {
  const options: NonNullable<ParseArgsConfig['options']> = {}
  for (const { name, alias = name, short, value, kind } of known) {
    const type = value === undefined || kind === 'optional' ? 'boolean' : 'string'
    options[alias] = { type }
    options[name] = short === undefined ? { type } : { type, short }
  }
  return parseArgs({ args: [...words], options, strict: false, tokens: true }).tokens
}

function unknownOption(word: string, known: readonly Option[], command: string): UsageError {
  const names = known.map(({ name }) => `--${name}`)
  return new UsageError(`unknown option ${word}${didYouMean(word, names, `see ${command} --help`)}`)
}

/** The values of an option; a list and an optional value may take further tokens. */
function valuesOf(
  { value: meta, kind, accepts }: Option,
  { value, rawName, inlineValue }: OptionToken,
  next: Tokens,
): readonly string[] {
  if (meta === undefined && value !== undefined)
    throw new UsageError(`${rawName}: takes no value, want ${rawName} alone`)
  if (meta === undefined) return []
  // `-o=json` is `-o json`.
  if (inlineValue && value !== undefined) return [rawName.startsWith('--') ? value : value.replace(/^=/, '')]
  if (value === undefined && kind !== 'optional')
    throw new UsageError(`${rawName}: no value, want ${rawName} ${meta}`)
  const values = value === undefined ? [] : [value]
  for (let [token] = next; token?.kind === 'positional'; [token] = next) {
    const isTaken =
      kind === 'list' || (kind === 'optional' && values.length === 0 && accepts?.test(token.value))
    if (!isTaken) break
    values.push(token.value)
    next.shift()
  }
  return values
}

function add(option: Option, values: readonly string[], found: Found): void {
  const { choices, name } = option
  if (choices !== undefined) checkChoice(`--${name}`, values, choices)
  const isMany = option.repeated === true || option.kind === 'list'
  found.set(name, [...(isMany ? (found.get(name) ?? []) : []), ...values])
}

function checkChoice(what: string, values: readonly string[], choices: readonly string[]): void {
  const wrong = values.find((value) => !choices.includes(value))
  if (wrong === undefined) return
  const hint = didYouMean(wrong, choices, `want one of ${choices.join(', ')}`)
  throw new UsageError(`${what}: unknown value "${wrong}"${hint}`)
}

function argumentAt(command: Command, index: number): Argument | undefined {
  const list = command.arguments ?? []
  const last = list.at(-1)
  return list[index] ?? (last?.repeated ? last : undefined)
}

function namedArguments(command: Command, words: readonly string[]): Map<string, readonly string[]> {
  const list = command.arguments ?? []
  const named = new Map<string, readonly string[]>()
  for (const [index, argument] of list.entries()) {
    const own = argument.repeated ? words.slice(index) : words.slice(index, index + 1)
    if (own.length === 0 && argument.optional !== true)
      throw new UsageError(`${command.name}: no ${argument.name}, see agent-ctl ${command.name} --help`)
    if (argument.choices !== undefined) checkChoice(argument.name, own, argument.choices)
    if (own.length > 0) named.set(argument.name, own)
  }
  const extra = list.at(-1)?.repeated ? undefined : words[list.length]
  if (extra !== undefined)
    throw new UsageError(`${command.name}: unexpected "${extra}", see agent-ctl ${command.name} --help`)
  return named
}
