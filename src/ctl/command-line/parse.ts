import { didYouMean, normalized } from '../../base/suggest.mjs'
import { type Argument, type Command, type Option, UsageError, Values } from '../command.ts'
import { GLOBAL_OPTIONS } from './options.ts'

/** A command line without the name of the tool. */
export type CommandLine =
  /** Help of a command, or of the tool; `words` are the other words of the command. */
  | { readonly kind: 'help'; readonly command: Command | undefined; readonly words: readonly string[] }
  | { readonly kind: 'version' }
  | { readonly kind: 'command'; readonly command: Command; readonly values: Values }

/** The words of a command line that are left to read; each is shifted out when it is read. */
type Words = string[]

type Found = Map<string, string[]>

/** Parses a command line. A first word that is no command, but one of `methods`, is one of `call`. Throws {@link UsageError}. */
export function parseCommandLine(
  argv: readonly string[],
  commands: readonly Command[],
  methods: readonly string[],
): CommandLine {
  const words = [...argv]
  const options: Found = new Map()
  for (let word = words[0]; word?.startsWith('-'); word = words[0]) {
    words.shift()
    if (word === '--version' || word === '-V') return { kind: 'version' }
    readOption(word, words, GLOBAL_OPTIONS, options, 'agent-ctl')
  }
  const [first] = words
  if (first === undefined) return { kind: 'help', command: undefined, words: [] }
  const command = commandOf(first, words, commands, methods)
  const positional = readWords(command, words, options)
  if (options.has('help')) return { kind: 'help', command, words: positional }
  return { kind: 'command', command, values: new Values(options, namedArguments(command, positional)) }
}

/** The command of the next words, which are taken; the word of a method stays. */
function commandOf(
  first: string,
  words: Words,
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

/** Reads options until the words of the command end, and returns the other words. */
function readWords(command: Command, words: Words, found: Found): readonly string[] {
  const known = [...(command.options ?? []), ...GLOBAL_OPTIONS]
  const positional: string[] = []
  for (let word = words.shift(); word !== undefined; word = words.shift()) {
    if (word === '--') return [...positional, ...words]
    if (word.startsWith('-') && word !== '-') {
      readOption(word, words, known, found, `agent-ctl ${command.name}`)
      continue
    }
    positional.push(word)
    if (argumentAt(command, positional.length - 1)?.verbatim) return [...positional, ...words]
  }
  return positional
}

function readOption(
  word: string,
  words: Words,
  known: readonly Option[],
  found: Found,
  command: string,
): void {
  if (!word.startsWith('--')) {
    readShortOptions(word, words, known, found, command)
    return
  }
  const [, name = '', attached] = /^--([^=]*)(?:=(.*))?$/s.exec(word) ?? []
  const option = known.find((one) => one.name === name || one.alias === name)
  if (option === undefined) throw unknownOption(`--${name}`, known, command)
  if (option.value === undefined && attached !== undefined)
    throw new UsageError(`--${name}: takes no value, want --${name} alone`)
  add(option, attached === undefined ? valuesOf(option, `--${name}`, words) : [attached], found)
}

/** `-it` is `-i -t`, and `-ojson` is `-o json`. */
function readShortOptions(
  word: string,
  words: Words,
  known: readonly Option[],
  found: Found,
  command: string,
): void {
  for (let index = 1; index < word.length; index += 1) {
    const letter = word.charAt(index)
    const option = known.find(({ short }) => short === letter)
    if (option === undefined) throw unknownOption(`-${letter}`, known, command)
    const attached = word.slice(index + 1).replace(/^=/, '')
    if (option.value === undefined) {
      add(option, [], found)
      continue
    }
    add(option, attached === '' ? valuesOf(option, `-${letter}`, words) : [attached], found)
    return
  }
}

function unknownOption(word: string, known: readonly Option[], command: string): UsageError {
  const names = known.map(({ name }) => `--${name}`)
  return new UsageError(`unknown option ${word}${didYouMean(word, names, `see ${command} --help`)}`)
}

function valuesOf(option: Option, typed: string, words: Words): readonly string[] {
  if (option.value === undefined) return []
  if (option.kind === 'optional') {
    const [next] = words
    return next !== undefined && option.accepts?.test(next) ? words.splice(0, 1) : []
  }
  if (option.kind === 'list') {
    const end = words.findIndex((word) => word.startsWith('-'))
    return words.splice(0, end < 0 ? words.length : end)
  }
  const value = words.shift()
  if (value === undefined) throw new UsageError(`${typed}: no value, want ${typed} ${option.value}`)
  return [value]
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
