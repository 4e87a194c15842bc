import type { Argument, Command, Option } from '../command.ts'
import { GLOBAL_OPTIONS } from '../command-line/options.ts'

/** The shells that a completion can be made for. */
export const SHELLS = ['bash', 'zsh', 'fish'] as const

/** What the completions ask the tool for, in `agent-ctl completion WHAT`: one word a line. */
export const ASKED = ['containers', 'machines'] as const

/** Whether bash offers a word as it is. It would expand others, and run commands that a guest tells as an id. */
export function isPlainWord(word: string): boolean {
  return /^[\w.-]+$/.test(word)
}

/** How long a completion waits for these words, in seconds: the agent may hang. */
const ASK_SECONDS = 2

/** The options that say which agent to ask. */
const WHICH_AGENT = GLOBAL_OPTIONS.filter(({ name }) => name === 'address' || name === 'protocol')

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
  completes: 'choices' | 'file' | 'machine' | 'other',
): readonly Option[] {
  return options.filter(takesNextWord).filter((option) => {
    if (option.choices !== undefined) return completes === 'choices'
    const kind = option.completes === 'folder' ? 'file' : (option.completes ?? 'other')
    return kind === completes
  })
}

function takesNextWord({ kind, value }: Option): boolean {
  return value !== undefined && kind !== 'optional'
}

function casePattern({ alias, name, short }: Option): string {
  return [`--${name}`, ...(short ? [`-${short}`] : []), ...(alias ? [`--${alias}`] : [])].join('|')
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
    `  local word= before command= words= index piece glue= count=0 line=() ask=("\${COMP_WORDS[0]}")`,
    `  local methods='${methods.join(' ')}' global='${optionWords(GLOBAL_OPTIONS)}'`,
    ...BASH_LINE,
    '  case "$before" in',
    ...bashValues(all),
    '  esac',
    `  for ((index = 2; index < \${#line[@]}; index++)); do`,
    `    piece="\${line[index]}"`,
    '    case "$piece" in',
    `      ${WHICH_AGENT.map(casePattern).join('|')}) ask+=("$piece" "\${line[index+1]}"); ((index++)) ;;`,
    `      ${[...new Set(all.filter(takesNextWord).map(casePattern))].join('|')}) ((index++)) ;;`,
    '      -*) ;;',
    `      *) case "$command" in '') command="$piece" ;; ${firsts.join('|')}) command="$command $piece" ;; *) ((count++)) ;; esac ;;`,
    '    esac',
    '  done',
    '  case "$command" in',
    `    '') words="${firstWords(commands).join(' ')} $methods" ;;`,
    ...byCommand,
    ...seconds,
    '  esac',
    '  case "$word:$command:$count" in',
    '    -*) ;;',
    `    ${containerPlaces(commands)
      .map((place) => `*:${place}`)
      .join(
        '|',
      )}) words="$words $(timeout ${ASK_SECONDS} "\${ask[@]}" completion containers 2>/dev/null)" ;;`,
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

/** Joins the words that bash makes of one with colons, such as microvm://web; `word` is that before the cursor. */
const BASH_LINE = [
  '  for ((index = 0; index <= COMP_CWORD; index++)); do',
  `    piece="\${COMP_WORDS[index]}"`,
  '    if [[ $piece == : || -n $glue ]]; then word="$word$piece"; else line+=("$word"); word="$piece"; fi',
  '    if [[ $piece == : ]]; then glue=1; else glue=; fi',
  '  done',
  `  before="\${line[\${#line[@]}-1]}"`,
]

/** What follows an option with a value. */
function bashValues(options: readonly Option[]): ReadonlySet<string> {
  const choices = valueOptions(options, 'choices').map(
    (option) =>
      `    ${casePattern(option)}) COMPREPLY=($(compgen -W '${option.choices?.join(' ')}' -- "$word")); return ;;`,
  )
  const files = valueOptions(options, 'file').map(
    (option) => `    ${casePattern(option)}) COMPREPLY=($(compgen -f -- "$word")); return ;;`,
  )
  const machines = valueOptions(options, 'machine').map((option) =>
    [
      `    ${casePattern(option)})`,
      `      words="$(timeout ${ASK_SECONDS} "\${COMP_WORDS[0]}" completion machines 2>/dev/null)"`,
      '      COMPREPLY=($(compgen -W "$words" -- "$word"))',
      '      # bash replaces what follows the last colon.',
      `      if [[ $word == *:* && \${COMP_WORDBREAKS-} == *:* ]]; then COMPREPLY=("\${COMPREPLY[@]##*:}"); fi`,
      '      return ;;',
    ].join('\n'),
  )
  const others = valueOptions(options, 'other').map((option) => `    ${casePattern(option)}) return ;;`)
  return new Set([...choices, ...files, ...machines, ...others])
}

/** Where commands take a container: `COMMAND:NUMBER`, with the number of words between, or `*` for any. */
function containerPlaces(commands: readonly Command[]): readonly string[] {
  return commands.flatMap(({ arguments: list = [], name }) =>
    list.flatMap(({ completes, repeated }, index) =>
      completes === 'container' ? [`${name}:${repeated ? '*' : index}`] : [],
    ),
  )
}

function fish(commands: readonly Command[], methods: readonly string[]): string {
  const none = '__fish_use_subcommand'
  const line = (condition: string | undefined, rest: string) =>
    `complete -c agent-ctl${condition === undefined ? '' : ` -n '${condition}'`} ${rest}`
  const option = (
    condition: string | undefined,
    { choices, completes, kind, name, short, summary, value }: Option,
  ) =>
    line(
      condition,
      [
        `-l ${name}`,
        ...(short === undefined ? [] : [`-s ${short}`]),
        ...(value !== undefined && kind !== 'optional' ? ['-r'] : []),
        ...(choices === undefined ? [] : [`-fa '${choices.join(' ')}'`]),
        ...(completes === 'machine' ? [`-fa '(__agent_ctl_ask machines)'`] : []),
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
    ...FISH_ASK,
    ...GLOBAL_OPTIONS.map((one) => option(undefined, one)),
    line(seenFrom(containerPlaces(commands)), `-fa '(__agent_ctl_ask containers)'`),
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

/** Asks the agent that the command line names. */
const FISH_ASK = [
  'function __agent_ctl_ask',
  '  set -l words (commandline -opc)',
  '  set -l ask $words[1]',
  '  for index in (seq 2 (math (count $words) - 1))',
  '    switch $words[$index]',
  `      case ${WHICH_AGENT.map((option) => casePattern(option).replaceAll('|', ' ')).join(' ')}`,
  '        set -a ask $words[$index] $words[(math $index + 1)]',
  '    end',
  '  end',
  `  timeout ${ASK_SECONDS} $ask completion $argv 2>/dev/null`,
  'end',
]

function seenFrom(places: readonly string[]): string {
  return `__fish_seen_subcommand_from ${places.map((place) => place.split(':')[0]).join(' ')}`
}
