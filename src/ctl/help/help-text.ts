import { type Argument, type Command, GROUPS, type Option } from '../command.ts'
import { GLOBAL_OPTIONS } from '../command-line/options.ts'

const WIDTH = 100

export function toolHelp(commands: readonly Command[]): string {
  const groups = Object.entries(GROUPS).flatMap(([group, title]) => {
    const rows = commands.filter((command) => command.group === group)
    return rows.length === 0
      ? []
      : [`${title}:`, ...columns(rows.map(({ name, summary }) => [name, summary])), '']
  })
  return [
    'agent-ctl: asks and commands the agent of a microVM',
    '',
    'Usage:',
    '  agent-ctl [OPTIONS] COMMAND [WORD…]',
    '  agent-ctl [OPTIONS] METHOD [FIELD=VALUE…]   any call of the agent, such as ListRoutes',
    '',
    ...groups,
    'Options:',
    ...optionColumns(GLOBAL_OPTIONS),
    '  -V, --version',
    '',
    'Exit status: that of the process for run, exec and attach; 0 when all went well; 1 when the agent answered',
    'an error; 2 for a mistake in the command line; 125 when the agent cannot be reached or the process cannot be',
    'started, 126 when the program is no program, 127 when there is none; 128 + N when signal N ended agent-ctl.',
    '',
    'agent-ctl COMMAND --help tells more.',
    '',
  ].join('\n')
}

export function commandHelp(command: Command): string {
  const { details = [], examples, options = [], summary } = command
  const list = command.arguments ?? []
  return [
    `Usage: agent-ctl ${usageOf(command)}`,
    '',
    ...wrap(`${summary.charAt(0).toUpperCase()}${summary.slice(1)}.`, WIDTH),
    ...details.flatMap((paragraph) => ['', ...wrap(paragraph, WIDTH)]),
    '',
    ...section('Arguments:', columns(list.map((argument) => [argument.name, argument.summary]))),
    ...section('Options:', optionColumns(options)),
    ...section(
      'Examples:',
      examples.map(([words, does]) => `  agent-ctl ${words}\n      ${does}`),
    ),
    'agent-ctl --help shows the options of every command, such as --address.',
    '',
  ].join('\n')
}

/** Such as `exec [OPTIONS] CONTAINER PROGRAM…`. */
export function usageOf({ arguments: list = [], name, options = [] }: Command): string {
  return [name, ...(options.length > 0 ? ['[OPTIONS]'] : []), ...list.map(argumentText)].join(' ')
}

function argumentText({ name, optional, repeated }: Argument): string {
  const text = repeated ? `${name}…` : name
  return optional ? `[${text}]` : text
}

/** Such as `-o, --output FORMAT`. */
export function optionText({ kind, name, short, value }: Option): string {
  const text = `${short === undefined ? '' : `-${short}, `}--${name}`
  if (value === undefined) return text
  if (kind === 'optional') return `${text} [${value}]`
  return kind === 'list' ? `${text} ${value}…` : `${text} ${value}`
}

export function optionSummary({ choices, repeated, summary }: Option): string {
  const all = choices === undefined ? '' : ` (${choices.join(', ')})`
  return `${summary}${all}${repeated ? ' (repeatable)' : ''}`
}

function optionColumns(options: readonly Option[]): readonly string[] {
  return columns(options.map((option) => [optionText(option), optionSummary(option)]))
}

function section(title: string, lines: readonly string[]): readonly string[] {
  return lines.length === 0 ? [] : [title, ...lines, '']
}

function columns(rows: readonly (readonly [string, string])[]): readonly string[] {
  const width = Math.min(28, Math.max(0, ...rows.map(([first]) => first.length)))
  return rows.flatMap(([first, second]) => {
    const [line = '', ...more] = wrap(second, WIDTH - width - 4)
    const begin = `  ${first.padEnd(width)}  `
    const head = first.length > width ? [`  ${first}`, `${''.padEnd(width + 4)}${line}`] : [`${begin}${line}`]
    return [...head, ...more.map((text) => `${''.padEnd(width + 4)}${text}`)]
  })
}

function wrap(text: string, width: number): readonly string[] {
  const lines: string[] = []
  let line = ''
  for (const word of text.split(' ')) {
    if (line !== '' && line.length + 1 + word.length > width) {
      lines.push(line)
      line = word
    } else line = line === '' ? word : `${line} ${word}`
  }
  return [...lines, line]
}
