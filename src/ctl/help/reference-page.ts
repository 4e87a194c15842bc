import { type Command, GROUPS, type Option } from '../command.ts'
import { GLOBAL_OPTIONS } from '../command-line/options.ts'
import { optionSummary, optionText, usageOf } from './help-text.ts'

/** The generated lines of docs/agent-ctl.md stand between these. */
const BEGIN = '<!-- generated from the table of commands: npm run gen -->'
const END = '<!-- end of the generated part -->'

/** The text of docs/agent-ctl.md with its generated part made anew. Throws when the part is not marked. */
export function withReference(page: string, commands: readonly Command[]): string {
  const [begin, end] = [page.indexOf(BEGIN), page.indexOf(END)]
  if (begin < 0 || end < begin) throw new Error(`docs/agent-ctl.md: no part between ${BEGIN} and ${END}`)
  return `${page.slice(0, begin + BEGIN.length)}\n\n${referencePage(commands)}\n${page.slice(end)}`
}

/** The generated part of docs/agent-ctl.md: every command with its options and examples. */
function referencePage(commands: readonly Command[]): string {
  return [
    '### Options of every command',
    '',
    ...optionTable(GLOBAL_OPTIONS),
    ...Object.entries(GROUPS).flatMap(([group, title]) => {
      const own = commands.filter((command) => command.group === group)
      return own.length === 0 ? [] : [`### ${title}`, '', ...own.flatMap(commandLines)]
    }),
  ].join('\n')
}

function commandLines(command: Command): readonly string[] {
  const { arguments: list = [], details = [], examples, options = [], summary } = command
  return [
    `#### \`${usageOf(command)}\``,
    '',
    `${summary.charAt(0).toUpperCase()}${summary.slice(1)}.`,
    '',
    ...details.flatMap((paragraph) => [paragraph, '']),
    ...(list.length === 0
      ? []
      : [
          '| argument | |',
          '|---|---|',
          ...list.map((one) => `| \`${one.name}\` | ${cell(one.summary)} |`),
          '',
        ]),
    ...(options.length === 0 ? [] : optionTable(options)),
    '```sh',
    ...examples.flatMap(([words, does]) => [`agent-ctl ${words}   # ${does}`]),
    '```',
    '',
  ]
}

function optionTable(options: readonly Option[]): readonly string[] {
  return [
    '| option | |',
    '|---|---|',
    ...options.map((option) => `| \`${cell(optionText(option))}\` | ${cell(optionSummary(option))} |`),
    '',
  ]
}

function cell(text: string): string {
  return text.replaceAll('|', '\\|')
}
