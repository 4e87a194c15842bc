import packageJson from '../../../../package.json' with { type: 'json' }
import { type Command, type Context, GROUPS, type Option } from '../../command.ts'
import { GLOBAL_OPTIONS } from '../../command-line/options.ts'
import { optionSummary, optionText, usageOf } from '../../help/help-text.ts'
import { print } from '../../output/print.ts'

export async function run(context: Context): Promise<undefined> {
  await print(context, manPage(context.commands, packageJson.version))
}

export function manPage(commands: readonly Command[], version: string): string {
  return [
    `.TH AGENT-CTL 1 "" "agent-ctl ${version}"`,
    '.SH NAME',
    'agent-ctl \\- asks and commands the agent of a microVM',
    '.SH SYNOPSIS',
    '.B agent-ctl',
    '[OPTIONS] COMMAND [WORD...]',
    '.br',
    '.B agent-ctl',
    '[OPTIONS] METHOD [FIELD=VALUE...]',
    '.SH OPTIONS',
    ...GLOBAL_OPTIONS.flatMap(optionLines),
    ...Object.entries(GROUPS).flatMap(([group, title]) => {
      const own = commands.filter((command) => command.group === group)
      return own.length === 0 ? [] : [`.SH ${escaped(title.toUpperCase())}`, ...own.flatMap(commandLines)]
    }),
    '.SH EXIT STATUS',
    'That of the process for run, exec and attach. 0 when all went well, 1 when the agent answered an error, 2 for',
    'a mistake in the command line, 125 when the agent cannot be reached or the process cannot be started, 126 when',
    'the program is no program, 127 when there is none, 128 + N when signal N ended agent\\-ctl.',
    '.SH ENVIRONMENT',
    '.TP',
    '.B AGENT_CTL_ADDRESS',
    'The address of the agent when \\-\\-address is not given.',
    '.TP',
    '.B MICROVM_REGISTRY',
    'The folder in which runs of ./microvm tell their address.',
    '.TP',
    '.B NO_COLOR',
    'Turns colours off when it is not empty.',
    '',
  ].join('\n')
}

function commandLines(command: Command): readonly string[] {
  const { details = [], examples, options = [], summary } = command
  return [
    `.SS ${escaped(usageOf(command))}`,
    `${escaped(`${summary.charAt(0).toUpperCase()}${summary.slice(1)}.`)}`,
    ...details.flatMap((paragraph) => ['.PP', escaped(paragraph)]),
    ...options.flatMap(optionLines),
    ...examples.flatMap(([words, does]) => ['.TP', `.B agent\\-ctl ${escaped(words)}`, escaped(does)]),
  ]
}

function optionLines(option: Option): readonly string[] {
  return ['.TP', `.B ${escaped(optionText(option))}`, escaped(optionSummary(option))]
}

/** roff interprets a backslash, a hyphen, and a dot or quote at the beginning of a line. */
function escaped(text: string): string {
  return text
    .replaceAll('\\', '\\e')
    .replaceAll('-', '\\-')
    .replaceAll('…', '...')
    .replace(/^([.'])/, '\\&$1')
}
