export const SHELLS = /** @type {const} */ (['bash', 'zsh', 'fish'])

/**
 * An option. Its value is one of `choices`, or of the kind `completes`, such as `file` or `machine`.
 * @typedef {object} Option
 * @property {string} name
 * @property {string} [short]
 * @property {string} [alias]
 * @property {string} [value] the name of its value; without it the option is a flag
 * @property {'optional' | 'list'} [kind]
 * @property {readonly string[]} [choices]
 * @property {string} [completes]
 * @property {string} [summary]
 */

/**
 * An argument of a command. From a `verbatim` argument on, the words belong to another program.
 * @typedef {object} Argument
 * @property {boolean} [repeated]
 * @property {boolean} [verbatim]
 * @property {readonly string[]} [choices]
 * @property {string} [completes]
 */

/**
 * A command, whose name has one or two words.
 * @typedef {object} Command
 * @property {string} name
 * @property {string} summary
 * @property {readonly Option[]} [options]
 * @property {readonly Argument[]} [arguments]
 */

/**
 * @typedef {object} Tool
 * @property {string} name
 * @property {readonly Option[]} globals the options of every command
 * @property {readonly Command[]} commands
 * @property {readonly string[]} calls further first words
 * @property {boolean} goesOnWithFiles bash offers file names where nothing else fits
 */

/** How long a completion waits for its tool, because the agent may hang. */
const ASK_SECONDS = 2

/** The kinds of arguments that the tool itself is asked for, by `completion` and this word. */
const ASKED = { container: 'containers', instance: 'instances' }

/**
 * The completion script for a shell. Plain JavaScript, because `./microvm` uses it before anything is set up.
 * @param {typeof SHELLS[number]} shell
 * @param {Tool} tool
 * @returns {string}
 */
export function completionFor(shell, tool) {
  if (shell === 'fish') return fish(tool)
  // bashcompinit of zsh runs the completions of bash.
  const begin = `#compdef ${tool.name}\nautoload -U +X bashcompinit && bashcompinit\n`
  return shell === 'bash' ? bash(tool) : `${begin}${bash(tool)}`
}

/** @param {Tool} tool */
function bash({ calls, commands, globals, goesOnWithFiles, name: tool }) {
  const all = [...globals, ...commands.flatMap(({ options = [] }) => options)]
  const firsts = commands.flatMap(({ name }) => (name.includes(' ') ? firstOf(name) : []))
  const files = commands
    .filter(({ arguments: list = [] }) => list.some(isOfFiles))
    .map(({ name }) => `'${name}'`)
  const asked = Object.entries(ASKED).map(([kind, what]) =>
    arm(
      placesOf(kind, commands).map((place) => `*:${place}`),
      `words="$words $(timeout ${ASK_SECONDS} "\${ask[@]}" completion ${what} 2>/dev/null)"`,
    ),
  )
  const own = `_${tool.replace('-', '_')}`
  return `# Generated from the table of commands: ${tool} completion bash
${own}() {
  local word= before= command= words= index piece glue= count=0 line=() ask=("\${COMP_WORDS[0]}")
  local methods='${calls.join(' ')}' global='${optionWords(globals)}'
  # Joins the words that bash makes of one with colons, such as microvm://web; word is that before the cursor.
  for ((index = 0; index <= COMP_CWORD; index++)); do
    piece="\${COMP_WORDS[index]}"
    if [[ $piece == : || -n $glue ]]; then word="$word$piece"; else line+=("$word"); word="$piece"; fi
    if [[ $piece == : ]]; then glue=1; else glue=; fi
  done
  before="\${line[\${#line[@]}-1]}"
  case "$before" in
${[...new Set(all.filter(takesNextWord).map((option) => arm([casePattern(option)], completedValue(option, goesOnWithFiles))))].join('')}  esac
  for ((index = 2; index < \${#line[@]}; index++)); do
    piece="\${line[index]}"
    case "$piece" in
${arm(whichAgent(globals).map(casePattern), `ask+=("$piece" "\${line[index+1]}"); ((index++))`)}\
${arm(all.filter(takesNextWord).map(casePattern), '((index++))')}\
${arm(['-*'], '')}\
${arm(['*'], `case "$command" in '') command="$piece" ;; ${arm(firsts, 'command="$command $piece"').trim()} *) ((count++)) ;; esac`)}\
    esac
  done
  case "$command" in
${arm(["''"], `words="${firstWords(commands).join(' ')} $methods"`)}\
${commands.map((command) => arm([`'${command.name}'`], wordsOf(command, commands))).join('')}\
${firsts.map((first) => arm([`'${first}'`], `words="${secondsOf(first, commands).join(' ')}"`)).join('')}  esac
  case "$word:$command:$count" in
${arm(['-*'], '')}\
${asked.join('')}  esac
  COMPREPLY=($(compgen -W "$words $global" -- "$word"))
  case "$command" in
${arm(files, 'COMPREPLY+=($(compgen -f -- "$word"))')}  esac
}
complete -o bashdefault${goesOnWithFiles ? ' -o default' : ''} -F ${own} ${tool}
`
}

/**
 * @param {readonly string[]} patterns
 * @param {string} then
 */
function arm(patterns, then) {
  return patterns.length === 0 ? '' : `    ${[...new Set(patterns)].join('|')}) ${then} ;;\n`
}

/**
 * The bash code that completes the value of an option.
 * @param {Option} option
 * @param {boolean} goesOnWithFiles
 */
function completedValue({ choices, completes }, goesOnWithFiles) {
  if (choices !== undefined) return `COMPREPLY=($(compgen -W '${choices.join(' ')}' -- "$word")); return`
  if (isOfFiles({ completes }) && !goesOnWithFiles) return 'COMPREPLY=($(compgen -f -- "$word")); return'
  if (completes !== 'machine') return 'return'
  return `
      words="$(timeout ${ASK_SECONDS} "\${COMP_WORDS[0]}" completion machines 2>/dev/null)"
      COMPREPLY=($(compgen -W "$words" -- "$word"))
      # bash replaces what follows the last colon.
      if [[ $word == *:* && \${COMP_WORDBREAKS-} == *:* ]]; then COMPREPLY=("\${COMPREPLY[@]##*:}"); fi
      return`
}

/**
 * The bash code that offers the words of a command. It offers none among the words of another program.
 * @param {Command} command
 * @param {readonly Command[]} commands
 */
function wordsOf({ arguments: list = [], options = [] }, commands) {
  const words = list.flatMap(({ choices = [], completes }) => {
    if (completes === 'method') return ['$methods']
    return completes === 'command' ? firstWords(commands) : choices
  })
  const end = list.findIndex(({ verbatim }) => verbatim)
  return `words="${[optionWords(options), ...words].join(' ').trim()}"${end < 0 ? '' : `; ((count > ${end})) && return`}`
}

/** @param {Tool} tool */
function fish({ calls, commands, globals, name: tool }) {
  const none = '__fish_use_subcommand'
  /** @param {string} words */
  const seen = (words) => `__fish_seen_subcommand_from ${words}`
  /** @type {(condition: string | undefined, rest: string) => string} */
  const line = (condition, rest) =>
    `complete -c ${tool}${condition === undefined ? '' : ` -n '${condition}'`} ${rest}`
  /** @type {(condition: string | undefined, option: Option) => string} */
  const option = (condition, { choices, completes, kind, name, short, summary = '', value }) =>
    line(
      condition,
      [
        `-l ${name}`,
        ...(short === undefined ? [] : [`-s ${short}`]),
        ...(takesNextWord({ kind, value }) ? [isOfFiles({ completes }) ? '-rF' : '-x'] : []),
        ...(choices === undefined ? [] : [`-a '${choices.join(' ')}'`]),
        ...(completes === 'machine' ? [`-a '(${ask} machines)'`] : []),
        ...(summary === '' ? [] : [`-d '${quoted(summary)}'`]),
      ].join(' '),
    )
  const ask = `__${tool.replace('-', '_')}_ask`
  const asked = Object.entries(ASKED).flatMap(([kind, what]) => {
    const places = placesOf(kind, commands).map((place) => place.split(':')[0])
    return places.length === 0 ? [] : [line(seen(places.join(' ')), `-fa '(${ask} ${what})'`)]
  })
  const offers = commands.flatMap(({ arguments: list = [], name, options = [], summary }) => {
    const [first = '', second] = name.split(' ')
    const own = seen(second ?? first)
    const choices = list.flatMap((argument) => argument.choices ?? [])
    return [
      line(none, `-fa ${first} -d '${second === undefined ? quoted(summary) : `${first} …`}'`),
      ...(second === undefined ? [] : [line(seen(first), `-fa ${second} -d '${quoted(summary)}'`)]),
      ...options.map((one) => option(own, one)),
      ...(choices.length === 0 ? [] : [line(own, `-fa '${choices.join(' ')}'`)]),
    ]
  })
  return [
    `# Generated from the table of commands: ${tool} completion fish`,
    ...(asked.length === 0 ? [] : [fishAsk(ask, globals), ...asked]),
    ...globals.map((one) => option(undefined, one)),
    ...offers,
    ...(calls.length === 0
      ? []
      : [
          line(none, `-fa '${calls.join(' ')}' -d 'a call of the agent'`),
          line(seen('call'), `-fa '${calls.join(' ')}'`),
        ]),
    '',
  ].join('\n')
}

/**
 * @param {string} name
 * @param {readonly Option[]} globals
 */
function fishAsk(name, globals) {
  const which = whichAgent(globals)
  if (which.length === 0)
    return `function ${name}
  timeout ${ASK_SECONDS} (commandline -opc)[1] completion $argv 2>/dev/null
end`
  return `function ${name}
  set -l words (commandline -opc)
  set -l ask $words[1]
  for index in (seq 2 (math (count $words) - 1))
    switch $words[$index]
      case ${which.map(casePattern).join(' ').replaceAll('|', ' ')}
        set -a ask $words[$index] $words[(math $index + 1)]
    end
  end
  timeout ${ASK_SECONDS} $ask completion $argv 2>/dev/null
end`
}

/** @param {string} text */
function quoted(text) {
  return text.replaceAll("'", "\\'")
}

/** @param {readonly Option[]} globals */
function whichAgent(globals) {
  return globals.filter(({ name }) => name === 'address' || name === 'protocol')
}

/** @param {readonly Option[]} options */
function optionWords(options) {
  return options.flatMap(({ name, short }) => (short ? [`--${name}`, `-${short}`] : [`--${name}`])).join(' ')
}

/** @param {{ kind?: string | undefined, value?: string | undefined }} option */
function takesNextWord({ kind, value }) {
  return value !== undefined && kind !== 'optional'
}

/** @param {{ completes?: string | undefined }} word */
function isOfFiles({ completes }) {
  return completes === 'file' || completes === 'folder'
}

/** @param {Option} option */
function casePattern({ alias, name, short }) {
  return [`--${name}`, ...(short ? [`-${short}`] : []), ...(alias ? [`--${alias}`] : [])].join('|')
}

/** @param {string} name */
function firstOf(name) {
  return name.split(' ')[0] ?? name
}

/** @param {readonly Command[]} commands */
function firstWords(commands) {
  return [...new Set(commands.map(({ name }) => firstOf(name)))]
}

/**
 * @param {string} first
 * @param {readonly Command[]} commands
 */
function secondsOf(first, commands) {
  return commands.flatMap(({ name }) => (name.startsWith(`${first} `) ? name.slice(first.length + 1) : []))
}

/**
 * The places of arguments of a kind: `COMMAND:NUMBER` with the number of words between, or `*` for any number.
 * @param {string} kind
 * @param {readonly Command[]} commands
 */
function placesOf(kind, commands) {
  return commands.flatMap(({ arguments: list = [], name }) =>
    list.flatMap(({ completes, repeated }, index) =>
      completes === kind ? [`${name}:${repeated ? '*' : index}`] : [],
    ),
  )
}
