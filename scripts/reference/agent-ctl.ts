import { type Command, GROUPS, type Option } from '../../src/ctl/command.ts'
import { GLOBAL_OPTIONS } from '../../src/ctl/command-line/options.ts'
import { COMMANDS } from '../../src/ctl/commands/table.ts'
import { optionSummary, optionText, usageOf } from '../../src/ctl/help/help-text.ts'

const INTRODUCTION = `# Commands of agent-ctl

Every command with its options and examples. \`npm run gen\` makes this page from the table in
\`src/ctl/commands/table.ts\`; [agent-ctl](../agent-ctl.md) says what the commands have in common.
`

export function agentCtlPage(): string {
  return [
    INTRODUCTION,
    '## Options of every command',
    '',
    ...optionTable(GLOBAL_OPTIONS),
    ...Object.entries(GROUPS).flatMap(([group, title]) => {
      const own = COMMANDS.filter((command) => command.group === group)
      return own.length === 0 ? [] : [`## ${title}`, '', ...own.flatMap(commandLines)]
    }),
  ].join('\n')
}

function commandLines(command: Command): readonly string[] {
  const { arguments: list = [], details = [], examples, options = [], summary } = command
  return [
    `### \`${usageOf(command)}\``,
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
