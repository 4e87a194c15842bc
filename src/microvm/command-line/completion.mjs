import { CHOICES, COMMANDS, OPTIONS } from './options.mjs'

/** The shells that {@link completionFor} knows. */
export const SHELLS = /** @type {const} */ (['bash', 'zsh', 'fish'])

/** @typedef {{ name: string, short?: string, takesValue: boolean, choices?: readonly string[] }} Option */

/** The options whose value is a path. */
const PATHS = ['rootfs', 'image', 'metadata', 'kernel']

/**
 * The completion of `./microvm` for a shell, from the table of options.
 * @param {typeof SHELLS[number]} shell
 * @returns {string}
 */
export function completionFor(shell) {
  if (shell === 'fish') return fish()
  // zsh runs the completions of bash.
  return shell === 'bash'
    ? bash()
    : `#compdef microvm\nautoload -U +X bashcompinit && bashcompinit\n${bash()}`
}

/** @returns {readonly Option[]} */
function options() {
  /** @type {Record<string, readonly string[]>} */
  const choices = CHOICES
  return Object.entries(OPTIONS).map(([name, option]) => ({
    name,
    takesValue: option.type === 'string',
    ...('short' in option && { short: option.short }),
    ...(choices[name] && { choices: choices[name] }),
  }))
}

/** @param {Option} option */
function words({ name, short }) {
  return short === undefined ? [`--${name}`] : [`--${name}`, `-${short}`]
}

function bash() {
  const all = options()
  const valued = all.filter(({ takesValue }) => takesValue)
  const choices = valued.flatMap((option) =>
    option.choices === undefined
      ? []
      : [`    ${words(option).join('|')}) words='${option.choices.join(' ')}' ;;`],
  )
  return `# Generated from the table of options: ./microvm completion bash
_microvm() {
  local word="\${COMP_WORDS[COMP_CWORD]}" before="\${COMP_WORDS[COMP_CWORD-1]}" words= index
  case "$COMP_CWORD:\${COMP_WORDS[1]}" in
    1:*) words='${Object.keys(COMMANDS).join(' ')} --help --version' ;;
    2:completion) words='${SHELLS.join(' ')}' ;;
    *:run) words='${all.flatMap(words).join(' ')}' ;;
  esac
  for ((index = 2; index < COMP_CWORD; index++)); do
    case "\${COMP_WORDS[index]}" in
      ${valued.flatMap(words).join('|')}) ((index++)) ;;
      -*) ;;
      *) return ;;
    esac
  done
  case "$before" in
${choices.join('\n')}
    ${valued
      .filter((option) => option.choices === undefined)
      .flatMap(words)
      .join('|')}) words= ;;
  esac
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}
complete -o bashdefault -o default -F _microvm microvm
`
}

function fish() {
  const run = `-n '__fish_seen_subcommand_from run'`
  return [
    '# Generated from the table of options: ./microvm completion fish',
    ...Object.entries(COMMANDS).map(
      ([name, does]) => `complete -c microvm -n __fish_use_subcommand -fa ${name} -d '${does}'`,
    ),
    'complete -c microvm -n __fish_use_subcommand -l version',
    'complete -c microvm -l help -s h',
    `complete -c microvm -n '__fish_seen_subcommand_from completion' -fa '${SHELLS.join(' ')}'`,
    ...options()
      .filter(({ name }) => name !== 'help')
      .map(({ choices, name, short, takesValue }) =>
        [
          `complete -c microvm ${run} -l ${name}`,
          ...(short === undefined ? [] : [`-s ${short}`]),
          ...(takesValue ? [PATHS.includes(name) ? '-rF' : '-x'] : []),
          ...(choices === undefined ? [] : [`-a '${choices.join(' ')}'`]),
        ].join(' '),
      ),
    '',
  ].join('\n')
}
