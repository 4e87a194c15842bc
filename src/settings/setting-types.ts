import { LONGEST_TIMER_MS } from '../base/abort.ts'
import { AgentError } from '../base/errors.ts'
import { formatIp, parseIp } from '../base/ip-address.ts'
import type { LogLevel } from '../base/log.ts'

/** Readers return undefined for an ignored value, and throw INVALID_ARGUMENT with the reason, but not the name. */
export interface SettingType<T> {
  /** The form of a value, for the documentation. */
  readonly name: string
  /** Reads a value of the kernel command line or the environment. `text` is undefined for a bare word without `=`. */
  readonly fromText: (text: string | undefined) => T | undefined
  readonly fromToml: (value: unknown) => T | undefined
  /** The value as a user writes it. */
  show(value: T): string
}

export interface Setting<T> {
  readonly commandLine?: string
  readonly toml?: string
  readonly environment?: string
  readonly type: SettingType<T>
  readonly default: NoInfer<T>
  readonly doc: string
  /** On the kernel command line the setting is ignored unless this key comes before it. */
  readonly after?: string
  /** The setting is only checked, because the agent does not have the feature. */
  readonly hasNoEffect?: true
}

/** Checks that the default has the type of the values. */
export function setting<T>(row: Setting<T>): Setting<T> {
  return row
}

/** The TOML key is `name`; the key on the kernel command line is `agent.` and `name`. */
export function agentSetting<T>(name: string, row: Setting<T>): Setting<T> {
  return { commandLine: `agent.${name}`, toml: name, ...row }
}

type StdioDial = { readonly kind: 'vsock' } | { readonly kind: 'unix'; readonly folder: string }

const LEVELS: Readonly<Record<string, LogLevel>> = {
  fatal: 'critical',
  panic: 'critical',
  critical: 'critical',
  error: 'error',
  warn: 'warn',
  warning: 'warn',
  info: 'info',
  debug: 'debug',
  trace: 'trace',
}

export const logLevel: SettingType<LogLevel> = textual('level', (text) => {
  const level = Object.hasOwn(LEVELS, text) ? LEVELS[text] : undefined
  if (level === undefined) throw malformed(`unknown level, want one of ${Object.keys(LEVELS).join(', ')}`)
  return level
})

export const text: SettingType<string> = textual('text', (value) => value)

export const nonEmptyText: SettingType<string> = textual('text', (value) => {
  if (value === '') throw malformed('value missing')
  return value
})

export function oneOf<const Words extends readonly [string, ...string[]]>(
  ...words: Words
): SettingType<Words[number]> {
  return textual(words.map((word) => `\`${word}\``).join(' / '), (value) => {
    const found = words.find((word) => word === value)
    if (found === undefined) throw malformed(`unknown value, want one of ${words.join(', ')}`)
    return found
  })
}

/** Where the host's ports of streams are: vsock, or unix sockets in a folder. */
export const stdioDial: SettingType<StdioDial> = {
  name: '`vsock` or `unix:DIR`',
  fromText: (value) => (value === undefined ? undefined : readDial(value)),
  fromToml: (value) => readDial(value),
  show: (dial) => (dial.kind === 'vsock' ? 'vsock' : `unix:${dial.folder}`),
}

function readDial(value: unknown): StdioDial {
  if (value === 'vsock') return { kind: 'vsock' }
  const folder = typeof value === 'string' ? /^unix:(\/.+)$/.exec(value)?.[1] : undefined
  if (folder === undefined) throw malformed('invalid value, want vsock or unix: and an absolute path')
  return { kind: 'unix', folder }
}

/** Only plain HTTP, because a guest has no certificates to verify a server with. */
export const httpEndpoint: SettingType<string> = textual('http:// URL', (value) => {
  const url = URL.canParse(value) ? new URL(value) : undefined
  if (url?.protocol === 'http:' && url.username === '' && url.search === '') return value
  throw malformed('invalid endpoint, want http://HOST, with :PORT and /PATH if need be')
})

/** An IP address in its normal form. A bare word is refused, because without an address any peer could connect. */
export const peerAddress: SettingType<string> = {
  name: 'IP address',
  fromText: (value) => readPeer(value),
  fromToml: (value) => readPeer(value),
  show: String,
}

function readPeer(value: unknown): string {
  const bytes = typeof value === 'string' ? parseIp(value) : undefined
  if (bytes?.some((byte) => byte !== 0)) return formatIp(bytes)
  throw malformed('invalid address, want the IP address of a host')
}

export const runtimeName: SettingType<string> = textual('`runc`, `crun` or a path', (value) => {
  if (value === 'runc' || value === 'crun' || value.startsWith('/')) return value
  throw malformed('unknown runtime, want runc, crun or an absolute path')
})

/** TASK_COMM_LEN of the kernel less the final zero. */
const PROCESS_NAME_BYTES = 15

export const processName: SettingType<string> = textual('1 to 15 bytes', (value) => {
  const printable = /^[^\p{Cc}/]+$/u.test(value)
  if (printable && Buffer.byteLength(value) <= PROCESS_NAME_BYTES) return value
  throw malformed(`invalid name, want 1 to ${PROCESS_NAME_BYTES} bytes without / and control characters`)
})

/** Set only by its bare word; `word=anything` is ignored. */
export const bareFlag: SettingType<boolean> = {
  name: 'bare word',
  fromText: (value) => (value === undefined ? true : undefined),
  fromToml: booleanFromToml,
  show: String,
}

/** `true`, `false` or an integer; anything else is false. */
export const boolean: SettingType<boolean> = {
  name: 'boolean',
  fromText: (value) => (value === undefined ? undefined : isTrue(value)),
  fromToml: booleanFromToml,
  show: String,
}

/** A {@link boolean} whose bare word means true. */
export const flag: SettingType<boolean> = {
  name: 'bare word or boolean',
  fromText: (value) => (value === undefined ? true : isTrue(value)),
  fromToml: booleanFromToml,
  show: String,
}

/** Only `false` and 0 turn it off: an unknown spelling, such as systemd's `yes`, must not choose the legacy hierarchy. */
export const unlessFalse: SettingType<boolean> = {
  name: 'boolean',
  fromText: (value) => (value === undefined ? undefined : !/^(false|0+)$/.test(value)),
  fromToml: booleanFromToml,
  show: String,
}

/** Whole seconds, returned as milliseconds; zero is ignored. In TOML a table `{secs, nanos}`. */
export const seconds: SettingType<number> = {
  name: 'seconds',
  fromText: (value) => {
    if (value === undefined) return undefined
    if (!/^\d+$/.test(value)) throw malformed('invalid time-out, want a whole number of seconds')
    return timeoutOrNothing(Number(value) * 1000)
  },
  fromToml: (value) => {
    const { secs, nanos = 0 } = isTable(value) ? value : {}
    if (!isWholeNumber(secs) || !isWholeNumber(nanos)) {
      throw malformed('invalid time-out, want a table { secs = N, nanos = N }')
    }
    return timeoutOrNothing(secs * 1000 + nanos / 1e6)
  },
  show: (value) => String(value / 1000),
}

/** A vsock port; zero and negative numbers are ignored. */
export const port: SettingType<number> = numeric('port', (value) => {
  if (value > 0xff_ff_ff_ff) throw malformed('port out of range, want at most 4294967295')
  return value > 0 ? value : undefined
})

/** An integer of 0 or more; a larger one than 2^53-1 becomes 2^53-1. */
export const count: SettingType<number> = numeric('number ≥ 0', (value) => {
  if (value < 0) throw malformed('negative, want 0 or more')
  return Math.min(value, Number.MAX_SAFE_INTEGER)
})

export function numberIn(least: number, greatest: number): SettingType<number> {
  return numeric(`${least} to ${greatest}`, (value) => {
    if (value < least || value > greatest) throw malformed(`out of range, want ${least} to ${greatest}`)
    return value
  })
}

function malformed(reason: string): AgentError {
  return new AgentError('INVALID_ARGUMENT', reason)
}

function textual<T extends string>(name: string, read: (text: string) => T): SettingType<T> {
  return {
    name,
    fromText: (value) => (value === undefined ? undefined : read(value)),
    fromToml: (value) => {
      if (typeof value !== 'string') throw malformed('not a string')
      return read(value)
    },
    show: (value) => value,
  }
}

function numeric(name: string, check: (value: number) => number | undefined): SettingType<number> {
  return {
    name,
    fromText: (value) => {
      if (value === undefined) return undefined
      if (!/^[+-]?\d+$/.test(value)) throw malformed('not a number')
      return check(Number(value))
    },
    fromToml: (value) => {
      // An integer above 2^53-1 comes as a bigint.
      if (typeof value === 'bigint') return check(Number(value))
      if (typeof value !== 'number' || !Number.isInteger(value)) throw malformed('not a number')
      return check(value)
    },
    show: String,
  }
}

function booleanFromToml(value: unknown): boolean {
  if (typeof value !== 'boolean') throw malformed('not a boolean, want true or false')
  return value
}

function isTrue(text: string): boolean {
  return text === 'true' || (/^\d+$/.test(text) && !/^0+$/.test(text))
}

function timeoutOrNothing(ms: number): number | undefined {
  return ms === 0 ? undefined : Math.min(Math.ceil(ms), LONGEST_TIMER_MS)
}

function isTable(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

function isWholeNumber(value: unknown): value is number {
  return typeof value === 'number' && Number.isSafeInteger(value) && value >= 0
}
