/**
 * An option of a command. A `value` that is a number has its bounds; one that is read must be a file.
 * Of one that may be given several times, the values are lines.
 * @typedef {import('../../client/completion.mjs').Option & { summary: string, number?: readonly [number, number], isRead?: boolean, isRepeated?: boolean }} CommandOption
 */

/**
 * @typedef {import('../../client/completion.mjs').Argument & { name: string, summary: string, isRead?: boolean, isOptional?: boolean }} CommandArgument
 */

/** @type {CommandOption} */
export const HELP = { name: 'help', short: 'h', summary: 'this text' }

/** @type {CommandOption} */
export const JSON_OUTPUT = { name: 'json', summary: 'print JSON, one value a line' }

/** A day, in seconds. */
const LONGEST_SECONDS = 86_400

/** @type {CommandOption} */
export const SOCKET = {
  name: 'socket',
  value: 'PATH',
  completes: 'file',
  summary: "the daemon's socket (default: MICROVM_SOCKET, else admin.sock in the default state folder)",
}

/** @type {CommandOption} */
export const TIMEOUT = {
  name: 'timeout',
  value: 'SECONDS',
  number: [1, LONGEST_SECONDS],
  summary: 'how long to wait for the answer (default: 120)',
}

/** @type {CommandOption} */
export const GRACE = {
  name: 'grace',
  value: 'SECONDS',
  // What the daemon takes (src/host/service/instance-methods.ts).
  number: [1, 3600],
  summary: 'how long the guest may take',
}

/** The options of a command that calls the daemon. */
export const ASKS = [JSON_OUTPUT, SOCKET, TIMEOUT, HELP]

/** @type {CommandArgument} */
export const KEY = { name: 'KEY', summary: 'the instance: a UUID or a name', completes: 'instance' }

/** @type {CommandArgument} */
export const FILE = {
  name: 'FILE',
  summary: 'JSON, or TOML in a file *.toml; - reads stdin',
  completes: 'file',
  isRead: true,
}

/** @type {CommandArgument} */
export const DOCUMENT = {
  name: 'FILE',
  summary: 'YAML or JSON, or TOML in a file *.toml; - reads stdin',
  completes: 'file',
  isRead: true,
}

/** @type {CommandArgument} */
export const DEVICE = { name: 'DEVICE', summary: 'the key of the device' }

/** @type {CommandArgument} */
export const SNAPSHOT = { name: 'SNAPSHOT', summary: 'its name: letters, digits, _ . -' }
