import { parseArgs } from 'node:util'
import { didYouMean } from '../../base/suggest.mjs'
import { commandHelp } from './command-help.mjs'
import { UsageError } from './usage-error.mjs'

/** @typedef {import('./commands.mjs').MachineCommand} MachineCommand */
/** @typedef {import('./commands.mjs').CommandOption} CommandOption */

/**
 * Values by the name of the option (`grace`; a flag has an empty value) or of the argument (`KEY`).
 * @typedef {ReadonlyMap<string, string>} Values
 */

/**
 * Parses the words of a command. Returns its help when they ask for it. Throws {@link UsageError}.
 * @param {MachineCommand} command
 * @param {readonly string[]} words
 * @returns {{ kind: 'text', text: string } | { kind: 'command', command: MachineCommand, values: Values }}
 */
export function parseCommand(command, words) {
  /** @type {Map<string, string>} */
  const values = new Map()
  /** @type {string[]} */
  const positional = []
  for (const token of tokensOf(words, command.options)) {
    if (token.kind === 'positional') positional.push(token.value)
    if (token.kind !== 'option') continue
    const option = optionOf(token, command)
    const before = option.isRepeated ? values.get(option.name) : undefined
    const word = wordOf(option, token)
    values.set(option.name, before === undefined ? word : `${before}\n${word}`)
  }
  if (values.has('help')) return { kind: 'text', text: commandHelp(command) }
  for (const [index, { name, isOptional }] of command.arguments.entries()) {
    const word = positional[index]
    if (word === undefined && isOptional) continue
    if (word === undefined || word === '')
      throw new UsageError(`${command.name}: no ${name}, ${seeHelp(command)}`)
    values.set(name, word)
  }
  const extra = positional[command.arguments.length]
  if (extra !== undefined) throw new UsageError(`${command.name}: unexpected "${extra}", ${seeHelp(command)}`)
  return { kind: 'command', command, values }
}

/**
 * @param {readonly string[]} words
 * @param {readonly CommandOption[]} options
 */
function tokensOf(words, options) {
  /** @type {NonNullable<import('node:util').ParseArgsConfig['options']>} */
  const known = {}
  for (const { name, short, value } of options) {
    known[name] = { type: value === undefined ? 'boolean' : 'string', ...(short && { short }) }
  }
  return parseArgs({ args: [...words], options: known, strict: false, tokens: true }).tokens
}

/** @typedef {{ name: string, rawName: string, value?: string | undefined }} OptionToken */

/**
 * @param {OptionToken} token
 * @param {MachineCommand} command
 */
function optionOf({ name, rawName }, command) {
  const found = command.options.find((option) => option.name === name)
  if (found !== undefined) return found
  const known = command.options.map((option) => `--${option.name}`)
  throw new UsageError(`unknown option ${rawName}${didYouMean(rawName, known, seeHelp(command))}`)
}

/**
 * @param {CommandOption} option
 * @param {OptionToken} token
 */
function wordOf({ isRepeated, name, number, value: meta }, { rawName, value }) {
  if (meta === undefined) {
    if (value !== undefined) throw new UsageError(`${rawName} takes no value`)
    return ''
  }
  if (value === undefined || value === '')
    throw new UsageError(`${rawName} needs a value: ${rawName} ${meta}`)
  if (
    number !== undefined &&
    !(/^\d{1,16}$/.test(value) && number[0] <= Number(value) && Number(value) <= number[1])
  ) {
    throw new UsageError(`--${name} ${value}: give a whole number from ${number[0]} to ${number[1]}`)
  }
  if (isRepeated && value.includes('\n')) throw new UsageError(`--${name}: a line feed in it, want none`)
  return value
}

/** @param {MachineCommand} command */
function seeHelp({ name }) {
  return `see ./microvm ${name} --help`
}
