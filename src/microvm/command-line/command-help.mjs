/** @typedef {import('./commands.mjs').MachineCommand} MachineCommand */
/** @typedef {import('./commands.mjs').CommandOption} CommandOption */

const WIDTH = 100

/**
 * The help of a command, from its row of the table.
 * @param {MachineCommand} command
 * @returns {string}
 */
export function commandHelp({ arguments: list, details = [], examples, name, options, summary }) {
  return [
    `Usage: ./microvm ${[name, '[OPTIONS]', ...list.map(argumentText)].join(' ')}`,
    '',
    ...wrap(`${summary.charAt(0).toUpperCase()}${summary.slice(1)}.`, WIDTH),
    ...details.flatMap((paragraph) => ['', ...wrap(paragraph, WIDTH)]),
    ...section('Arguments:', columns(list.map((argument) => [argument.name, argument.summary]))),
    ...section('Options:', columns(options.map((option) => [optionText(option), option.summary]))),
    ...section(
      'Examples:',
      examples.flatMap(([words, does]) => [`  ./microvm ${words}`, `      ${does}`]),
    ),
    '',
    ...wrap(EXIT_STATUS, WIDTH),
    '',
  ].join('\n')
}

/** @param {import('./commands.mjs').CommandArgument} argument */
function argumentText({ name, isOptional }) {
  return isOptional ? `[${name}]` : name
}

const EXIT_STATUS =
  'Exit status: 0 when all went well, 1 when the daemon answered an error or something is missing, 2 for a mistake in the command line, 125 when the daemon cannot be reached or started, 128 + N when signal N ended the command.'

/**
 * Rows of two columns.
 * @param {readonly (readonly [string, string])[]} rows
 * @returns {readonly string[]}
 */
export function columns(rows) {
  const width = Math.max(0, ...rows.map(([first]) => first.length))
  return rows.flatMap(([first, second]) =>
    wrap(second, WIDTH - width - 4).map(
      (text, index) => `  ${(index === 0 ? first : '').padEnd(width)}  ${text}`,
    ),
  )
}

/** @param {CommandOption} option */
function optionText({ name, short, value }) {
  return `${short === undefined ? '' : `-${short}, `}--${name}${value === undefined ? '' : ` ${value}`}`
}

/**
 * @param {string} title
 * @param {readonly string[]} lines
 */
function section(title, lines) {
  return lines.length === 0 ? [] : ['', title, ...lines]
}

/**
 * @param {string} text
 * @param {number} width
 * @returns {readonly string[]}
 */
function wrap(text, width) {
  /** @type {string[]} */
  const lines = []
  let line = ''
  for (const word of text.split(' ')) {
    if (line !== '' && line.length + 1 + word.length > width) {
      lines.push(line)
      line = word
    } else line = line === '' ? word : `${line} ${word}`
  }
  return [...lines, line]
}
