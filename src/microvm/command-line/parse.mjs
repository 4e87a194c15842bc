import { readFileSync } from 'node:fs'
import { parseArgs } from 'node:util'
import { didYouMean } from '../../base/suggest.mjs'
import { completionFor, SHELLS } from '../../client/completion.mjs'
import { isMachineName } from '../../client/machines/machine-name.mjs'
import { MACHINE_COMMANDS } from './commands.mjs'
import { MICROVM_HELP, RUN_HELP } from './help.mjs'
import { CHOICES, MEMORY_MIB, MICROVM, OPTIONS } from './options.mjs'
import { parseCommand } from './parse-command.mjs'
import { UsageError } from './usage-error.mjs'

/**
 * The options of `./microvm run`.
 * @typedef {object} RunOptions
 * @property {boolean} interactive pass a terminal's input on
 * @property {boolean} tty the container's process gets a terminal
 * @property {string | undefined} rootfs directory, tar or OCI layout of the container's root
 * @property {string | undefined} image raw image of the guest's own root
 * @property {string | undefined} metadata YAML or JSON file with the guest's name and addresses
 * @property {string | undefined} name the machine's name, by which agent-ctl finds it
 * @property {boolean} daemon the machine is made in the daemon
 * @property {boolean} warm it is a clone of the daemon's template
 * @property {string | undefined} socket the daemon's
 * @property {number} memoryMib
 * @property {number} cpus
 * @property {'bookworm' | 'trixie'} kernel whose modules the guest has
 * @property {string | undefined} kernelFile a bzImage in place of the kernel, which needs no stage-one initrd
 * @property {'disk' | 'partitioned' | 'initrd'} form
 * @property {'virtio-blk' | 'nvdimm'} rootDevice how the guest sees its root
 * @property {'serial' | 'virtio'} console
 * @property {'q35' | 'pc' | 'microvm'} machine
 * @property {string[]} append words for the kernel command line
 * @property {string[]} env NAME=VALUE entries
 * @property {string | undefined} workdir
 * @property {string | undefined} user USER[:GROUP]
 * @property {boolean} timings
 * @property {boolean} json
 * @property {boolean} verbose
 * @property {string[]} command empty: the root's own command or the demonstration
 */

/**
 * A text to print, a run, a command for machines of the daemon, or the question of a completion for their keys.
 * @typedef {{ kind: 'run', options: RunOptions } | { kind: 'keys' } | ReturnType<typeof parseCommand>} CommandLine
 */

/**
 * Parses the arguments of `./microvm`. Plain JavaScript, so that any Node can report a mistake before the set-up. Reads no
 * file that the arguments name. Throws {@link UsageError}.
 * @param {readonly string[]} argv
 * @returns {CommandLine}
 */
export function parseCommandLine(argv) {
  const [command, ...rest] = argv
  if (command === undefined || command === '--help' || command === '-h' || command === 'help') {
    return { kind: 'text', text: MICROVM_HELP }
  }
  if (command === '--version' || command === '-V') return { kind: 'text', text: `microvm ${version()}\n` }
  if (command === 'completion' && rest.join(' ') === 'instances') return { kind: 'keys' }
  if (command === 'completion') return { kind: 'text', text: completionFor(shellOf(rest), MICROVM) }
  if (command === 'run') return parseRun(rest)
  const found = MACHINE_COMMANDS.find(({ name }) => name === command)
  if (found !== undefined) return parseCommand(found, rest)
  const [what, known] = command.startsWith('-')
    ? ['option', ['--help', '--version']]
    : ['command', MICROVM.commands.map(({ name }) => name)]
  throw new UsageError(`unknown ${what} ${command}${didYouMean(command, known, 'see ./microvm --help')}`)
}

/** @returns {string} */
function version() {
  return JSON.parse(readFileSync(new URL('../../../package.json', import.meta.url), 'utf8')).version
}

/**
 * @param {readonly string[]} words
 * @returns {typeof SHELLS[number]}
 */
function shellOf(words) {
  const found = SHELLS.find((name) => name === words.join(' '))
  if (found !== undefined) return found
  throw new UsageError(`${['completion', ...words].join(' ')}: choose one of ${SHELLS.join(', ')}`)
}

/**
 * @param {readonly string[]} words
 * @returns {CommandLine}
 */
function parseRun(words) {
  /** @type {string[]} */
  const flags = []
  /** @type {string[]} */
  let command = []
  for (const token of parseArgs({ args: [...words], options: OPTIONS, strict: false, tokens: true }).tokens) {
    if (token.kind !== 'option') {
      command = words.slice(token.kind === 'positional' ? token.index : token.index + 1)
      break
    }
    if (token.name === 'help') return { kind: 'text', text: RUN_HELP }
    flags.push(checkedFlag(token.name, token.rawName, token.value))
  }
  return { kind: 'run', options: { ...runOptions(flags), command } }
}

/**
 * Returns the flag as `--name` or `--name=value`. Throws {@link UsageError} in one line where `parseArgs` would answer
 * with several.
 * @param {string} name
 * @param {string} typed
 * @param {string | undefined} value
 */
function checkedFlag(name, typed, value) {
  const type = Object.entries(OPTIONS).find(([known]) => known === name)?.[1].type
  if (type === undefined) {
    const known = Object.keys(OPTIONS).map((each) => `--${each}`)
    throw new UsageError(`unknown option ${typed}${didYouMean(typed, known, 'see ./microvm run --help')}`)
  }
  if (type === 'string') {
    if (value === undefined || value === '')
      throw new UsageError(`${typed} needs a value: see ./microvm run --help`)
    return `--${name}=${value}`
  }
  if (value !== undefined) throw new UsageError(`${typed} takes no value`)
  return `--${name}`
}

/**
 * @param {string[]} flags what {@link checkedFlag} returned
 * @returns {Omit<RunOptions, 'command'>}
 */
function runOptions(flags) {
  const { values } = parseArgs({ args: flags, options: OPTIONS })
  const { interactive, tty, daemon, warm, timings, json, verbose, append = [], env = [] } = values
  const { rootfs, image, metadata, memory, name, socket, workdir, user } = values
  if (values.form === 'initrd' && image !== undefined) {
    throw new UsageError('--image and --form initrd exclude each other: choose one root for the guest')
  }
  if (values['root-device'] === 'nvdimm' && values.form !== 'partitioned' && image === undefined) {
    throw new UsageError(
      '--root-device nvdimm: choose --form partitioned or --image with a partitioned image',
    )
  }
  if (values['root-device'] === 'nvdimm' && values.machine === 'microvm') {
    throw new UsageError('--root-device nvdimm: machine microvm has no persistent memory, choose q35 or pc')
  }
  if (socket !== undefined && !daemon && !warm) throw new UsageError('--socket: only with --daemon or --warm')
  if (warm && values.machine === 'microvm') {
    throw new UsageError('--warm: machine microvm takes no disk while it runs, choose q35 or pc')
  }
  if (warm && metadata !== undefined) {
    throw new UsageError('--warm: a template has no card for --metadata, run without one of them')
  }
  if (append.some((text) => /[\n\0]/.test(text))) {
    throw new UsageError('--append: the kernel command line is one line')
  }
  for (const entry of env) {
    if (!/^[^=]+=/.test(entry)) throw new UsageError(`--env ${entry}: give it as NAME=VALUE`)
  }
  if (name !== undefined && !isMachineName(name)) {
    throw new UsageError(`--name ${name}: give up to 32 lower-case letters, digits and hyphens`)
  }
  if (workdir !== undefined && !workdir.startsWith('/')) {
    throw new UsageError(`--workdir ${workdir}: give an absolute path`)
  }
  const form = oneOf('--form', values.form, CHOICES.form)
  return {
    ...{ interactive, tty, daemon, warm, timings, json, verbose },
    ...{ append, env, rootfs, image, metadata, name, socket, user, workdir },
    form,
    memoryMib: memory === undefined ? MEMORY_MIB[form].byDefault : memoryOf(memory, form),
    cpus: wholeNumber('--cpus', values.cpus, 1, 64),
    ...kernelOf(values.kernel),
    rootDevice: oneOf('--root-device', values['root-device'], CHOICES['root-device']),
    console: oneOf('--console', values.console, CHOICES.console),
    machine: oneOf('--machine', values.machine, CHOICES.machine),
  }
}

/**
 * A word with a slash is a file.
 * @param {string} value
 * @returns {Pick<RunOptions, 'kernel' | 'kernelFile'>}
 */
function kernelOf(value) {
  if (value.includes('/')) return { kernel: 'trixie', kernelFile: value }
  return { kernel: oneOf('--kernel', value, CHOICES.kernel), kernelFile: undefined }
}

/**
 * @param {string} value
 * @param {RunOptions['form']} form
 * @returns {number}
 */
function memoryOf(value, form) {
  const number = wholeNumber('--memory', value, 1, 1 << 24)
  const { least } = MEMORY_MIB[form]
  if (number >= least) return number
  throw new UsageError(`--memory ${value}: want at least ${least} with --form ${form}`)
}

/**
 * @param {string} flag
 * @param {string} value
 * @param {number} least
 * @param {number} most
 * @returns {number}
 */
function wholeNumber(flag, value, least, most) {
  const number = /^\d{1,9}$/.test(value) ? Number(value) : Number.NaN
  if (number >= least && number <= most) return number
  throw new UsageError(`${flag} ${value}: give a whole number from ${least} to ${most}`)
}

/**
 * @template {string} T
 * @param {string} flag
 * @param {string} value
 * @param {readonly T[]} choices
 * @returns {T}
 */
function oneOf(flag, value, choices) {
  const found = choices.find((choice) => choice === value)
  if (found !== undefined) return found
  throw new UsageError(`${flag} ${value}: choose one of ${choices.join(', ')}`)
}
