import { MICROVM_HELP, RUN_HELP } from './help.mjs'

/**
 * What `./microvm run` was asked to do.
 * @typedef {object} RunOptions
 * @property {boolean} interactive pass a terminal's input on
 * @property {boolean} tty the container's process gets a terminal
 * @property {string | undefined} rootfs directory, tar or OCI layout of the container's root
 * @property {string | undefined} image raw image of the guest's own root
 * @property {string | undefined} metadata YAML or JSON file of what the guest is told about itself
 * @property {number | undefined} memoryMib
 * @property {number} cpus
 * @property {'bookworm' | 'trixie'} kernel
 * @property {'disk' | 'initrd'} form
 * @property {'q35' | 'pc' | 'microvm'} machine
 * @property {string[]} append words for the kernel command line
 * @property {string[]} env NAME=VALUE entries
 * @property {string | undefined} workdir
 * @property {{ uid: number, gid: number } | undefined} user
 * @property {boolean} timings
 * @property {boolean} json
 * @property {boolean} verbose
 * @property {string[]} command empty: the root's own command or the demonstration
 */

/** @typedef {{ kind: 'help', text: string } | { kind: 'run', options: RunOptions }} CommandLine */

/** A mistake of whoever typed the command line: one sentence that says what to do. Exit status 2. */
export class UsageError extends Error {
  /**
   * @param {string} message
   * @param {ErrorOptions} [options]
   */
  constructor(message, options) {
    super(message, options)
    this.name = 'UsageError'
  }
}

/**
 * Understands the arguments of `./microvm`. Plain JavaScript, because a mistake has to be told before anything is
 * set up. Looks at no file. Throws {@link UsageError}.
 * @param {readonly string[]} argv
 * @returns {CommandLine}
 */
export function parseCommandLine(argv) {
  const [command, ...rest] = argv
  if (command === undefined || command === '--help' || command === '-h' || command === 'help') {
    return { kind: 'help', text: MICROVM_HELP }
  }
  if (command === 'run') return parseRun(rest)
  const what = command.startsWith('-') ? 'option' : 'command'
  throw new UsageError(`unknown ${what} ${command}: see ./microvm --help`)
}

/**
 * @param {readonly string[]} words
 * @returns {CommandLine}
 */
function parseRun(words) {
  const options = defaults()
  const queue = [...words]
  for (let word = queue.shift(); word !== undefined; word = queue.shift()) {
    if (word === '--') {
      options.command = queue
      break
    }
    if (!word.startsWith('-') || word === '-') {
      options.command = [word, ...queue]
      break
    }
    if (word === '--help' || word === '-h') return { kind: 'help', text: RUN_HELP }
    takeOption(options, word, queue)
  }
  if (options.form === 'initrd' && options.image !== undefined) {
    throw new UsageError('--image and --form initrd exclude each other: choose one root for the guest')
  }
  return { kind: 'run', options }
}

/** @returns {RunOptions} */
function defaults() {
  return {
    interactive: false,
    tty: false,
    rootfs: undefined,
    image: undefined,
    metadata: undefined,
    memoryMib: undefined,
    cpus: 2,
    kernel: 'bookworm',
    form: 'disk',
    machine: 'q35',
    append: [],
    env: [],
    workdir: undefined,
    user: undefined,
    timings: false,
    json: false,
    verbose: false,
    command: [],
  }
}

/** @type {Readonly<Record<string, (options: RunOptions) => void>>} */
const SWITCHES = {
  '--interactive': (options) => {
    options.interactive = true
  },
  '--tty': (options) => {
    options.tty = true
  },
  '--timings': (options) => {
    options.timings = true
  },
  '--json': (options) => {
    options.json = true
  },
  '--verbose': (options) => {
    options.verbose = true
  },
}

/** @type {Readonly<Record<string, (options: RunOptions, value: string, flag: string) => void>>} */
const VALUES = {
  '--rootfs': (options, value) => {
    options.rootfs = value
  },
  '--image': (options, value) => {
    options.image = value
  },
  '--metadata': (options, value) => {
    options.metadata = value
  },
  '--memory': (options, value, flag) => {
    options.memoryMib = wholeNumber(flag, value, 128, 1 << 20)
  },
  '--cpus': (options, value, flag) => {
    options.cpus = wholeNumber(flag, value, 1, 64)
  },
  '--kernel': (options, value, flag) => {
    options.kernel = oneOf(flag, value, ['bookworm', 'trixie'])
  },
  '--form': (options, value, flag) => {
    options.form = oneOf(flag, value, ['disk', 'initrd'])
  },
  '--machine': (options, value, flag) => {
    options.machine = oneOf(flag, value, ['q35', 'pc', 'microvm'])
  },
  '--append': (options, value) => {
    if (/[\n\0]/.test(value)) throw new UsageError('--append: the kernel command line is one line')
    options.append.push(value)
  },
  '--env': (options, value) => {
    if (!/^[^=]+=/.test(value)) throw new UsageError(`--env ${value}: give it as NAME=VALUE`)
    options.env.push(value)
  },
  '--workdir': (options, value) => {
    if (!value.startsWith('/')) throw new UsageError(`--workdir ${value}: give an absolute path`)
    options.workdir = value
  },
  '--user': (options, value) => {
    options.user = parseUser(value)
  },
}

/** @type {Readonly<Record<string, string>>} */
const SHORT = {
  '-i': '--interactive',
  '-t': '--tty',
  '-e': '--env',
  '-w': '--workdir',
  '-u': '--user',
}

/**
 * @param {RunOptions} options
 * @param {string} word
 * @param {string[]} queue the words after it; a value is taken from here
 */
function takeOption(options, word, queue) {
  if (word === '-it' || word === '-ti') {
    options.interactive = true
    options.tty = true
    return
  }
  const equals = word.startsWith('--') ? word.indexOf('=') : -1
  const typed = equals === -1 ? word : word.slice(0, equals)
  const flag = SHORT[typed] ?? typed
  const turnOn = SWITCHES[flag]
  if (turnOn !== undefined) {
    if (equals !== -1) throw new UsageError(`${typed} takes no value`)
    turnOn(options)
    return
  }
  const take = VALUES[flag]
  if (take === undefined) throw new UsageError(`unknown option ${typed}: see ./microvm run --help`)
  const value = equals === -1 ? queue.shift() : word.slice(equals + 1)
  if (value === undefined || value === '')
    throw new UsageError(`${typed} needs a value: see ./microvm run --help`)
  take(options, value, typed)
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

/**
 * @param {string} value
 * @returns {{ uid: number, gid: number }}
 */
function parseUser(value) {
  const match = /^(\d{1,9})(?::(\d{1,9}))?$/.exec(value)
  if (match === null) throw new UsageError(`--user ${value}: give a numeric UID or UID:GID`)
  return { uid: Number(match[1]), gid: Number(match[2] ?? match[1]) }
}
