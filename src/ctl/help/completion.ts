import type { Argument, Command, Option } from '../command.ts'
import { GLOBAL_OPTIONS } from '../command-line/options.ts'

/** The shells that a completion can be made for. */
export const SHELLS = ['bash', 'zsh', 'fish'] as const

/** The completion of a shell, from the table of commands; `methods` are the names of the agent's calls. */
export function completionFor(
  shell: (typeof SHELLS)[number],
  commands: readonly Command[],
  methods: readonly string[],
): string {
  if (shell === 'fish') return fish(commands, methods)
  const script = bash(commands, methods)
  // zsh runs the completions of bash.
  return shell === 'bash'
    ? script
    : `#compdef agent-ctl\nautoload -U +X bashcompinit && bashcompinit\n${script}`
}

function optionWords(options: readonly Option[]): string {
  return options
    .flatMap(({ name, short }) => (short === undefined ? [`--${name}`] : [`--${name}`, `-${short}`]))
    .join(' ')
}

/** The options whose value a shell completes in this way. */
function valueOptions(
  options: readonly Option[],
  completes: 'choices' | 'file' | 'other',
): readonly Option[] {
  return options.filter(takesNextWord).filter((option) => {
    if (option.choices !== undefined) return completes === 'choices'
    const isFile = option.completes === 'file' || option.completes === 'folder'
    return isFile ? completes === 'file' : completes === 'other'
  })
}

function takesNextWord({ kind, value }: Option): boolean {
  return value !== undefined && kind !== 'optional'
}

function casePattern({ name, short }: Option): string {
  return short === undefined ? `--${name}` : `--${name}|-${short}`
}

function argumentWords(list: readonly Argument[], commands: readonly Command[]): string {
  return list
    .flatMap(({ choices = [], completes }) => {
      if (completes === 'method') return ['$methods']
      return completes === 'command' ? firstWords(commands) : choices
    })
    .join(' ')
}

function firstWords(commands: readonly Command[]): readonly string[] {
  return [...new Set(commands.map(({ name }) => name.split(' ')[0] ?? name))]
}

function bash(commands: readonly Command[], methods: readonly string[]): string {
  const all = [...GLOBAL_OPTIONS, ...commands.flatMap(({ options = [] }) => options)]
  const choices = valueOptions(all, 'choices').map(
    (option) =>
      `    ${casePattern(option)}) COMPREPLY=($(compgen -W '${option.choices?.join(' ')}' -- "$word")); return ;;`,
  )
  const files = valueOptions(all, 'file').map(
    (option) => `    ${casePattern(option)}) COMPREPLY=($(compgen -f -- "$word")); return ;;`,
  )
  const others = valueOptions(all, 'other').map((option) => `    ${casePattern(option)}) return ;;`)
  const byCommand = commands.map(({ arguments: list = [], name, options = [] }) => {
    const words = `${optionWords(options)} ${argumentWords(list, commands)}`.trim()
    return `    '${name}') words="${words}" ;;`
  })
  const isFile = commands
    .filter(({ arguments: list = [] }) =>
      list.some(({ completes }) => completes === 'file' || completes === 'folder'),
    )
    .map(({ name }) => `'${name}'`)
  const twoWords = commands.filter(({ name }) => name.includes(' '))
  const firsts = [...new Set(twoWords.map(({ name }) => name.split(' ')[0] ?? ''))]
  const seconds = firsts.map((first) => {
    const own = twoWords
      .filter(({ name }) => name.startsWith(`${first} `))
      .map(({ name }) => name.split(' ')[1])
    return `    '${first}') words="${own.join(' ')}" ;;`
  })
  return [
    '# Generated from the table of commands: agent-ctl completion bash',
    '_agent_ctl() {',
    `  local word="\${COMP_WORDS[COMP_CWORD]}" before="\${COMP_WORDS[COMP_CWORD-1]}" command= words= index`,
    `  local methods='${methods.join(' ')}' global='${optionWords(GLOBAL_OPTIONS)}'`,
    '  case "$before" in',
    ...new Set([...choices, ...files, ...others]),
    '  esac',
    '  for ((index = 1; index < COMP_CWORD; index++)); do',
    `    case "\${COMP_WORDS[index]}" in`,
    `      ${GLOBAL_OPTIONS.filter(takesNextWord).map(casePattern).join('|')}) ((index++)) ;;`,
    '      -*) ;;',
    `      *) command="\${COMP_WORDS[index]}"; break ;;`,
    '    esac',
    '  done',
    ...(firsts.length === 0
      ? []
      : [
          `  case "$command" in ${firsts.join('|')})`,
          `    if ((index + 1 < COMP_CWORD)); then command="$command \${COMP_WORDS[index+1]}"; fi ;;`,
          '  esac',
        ]),
    '  case "$command" in',
    `    '') words="${firstWords(commands).join(' ')} $methods" ;;`,
    ...byCommand,
    ...seconds,
    '  esac',
    '  COMPREPLY=($(compgen -W "$words $global" -- "$word"))',
    ...(isFile.length === 0
      ? []
      : [`  case "$command" in ${isFile.join('|')}) COMPREPLY+=($(compgen -f -- "$word")) ;; esac`]),
    '}',
    'complete -o bashdefault -F _agent_ctl agent-ctl',
    '',
  ].join('\n')
}

function fish(commands: readonly Command[], methods: readonly string[]): string {
  const none = '__fish_use_subcommand'
  const line = (condition: string | undefined, rest: string) =>
    `complete -c agent-ctl${condition === undefined ? '' : ` -n '${condition}'`} ${rest}`
  const option = (condition: string | undefined, { choices, name, short, summary, value, kind }: Option) =>
    line(
      condition,
      [
        `-l ${name}`,
        ...(short === undefined ? [] : [`-s ${short}`]),
        ...(value !== undefined && kind !== 'optional' ? ['-r'] : []),
        ...(choices === undefined ? [] : [`-fa '${choices.join(' ')}'`]),
        `-d '${summary.replaceAll("'", "\\'")}'`,
      ].join(' '),
    )
  const [quote, escaped] = ["'", "\\'"]
  const words = (name: string) => name.split(' ')
  const offer = ({ name, summary }: Command) => {
    const [first = '', second] = words(name)
    const text = summary.replaceAll(quote, escaped)
    if (second === undefined) return [line(none, `-fa ${first} -d '${text}'`)]
    return [
      line(none, `-fa ${first} -d '${first} …'`),
      line(`__fish_seen_subcommand_from ${first}`, `-fa ${second} -d '${text}'`),
    ]
  }
  return [
    '# Generated from the table of commands: agent-ctl completion fish',
    ...GLOBAL_OPTIONS.map((one) => option(undefined, one)),
    ...commands.flatMap((command) => [
      ...offer(command),
      ...(command.options ?? []).map((one) =>
        option(`__fish_seen_subcommand_from ${words(command.name).at(-1)}`, one),
      ),
    ]),
    line(none, `-fa '${methods.join(' ')}' -d 'a call of the agent'`),
    line('__fish_seen_subcommand_from call', `-fa '${methods.join(' ')}'`),
    '',
  ].join('\n')
}
