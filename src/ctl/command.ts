import type { Duplex } from 'node:stream'
import { messageOf } from '../base/errors.ts'
import type { Stdio } from '../client/container/attach.ts'
import { START_FAILURE } from '../client/container/start-failure.ts'
import type { Session } from '../client/open-session.ts'
import type { Interruptions } from '../client/terminal/interruptions.ts'

export type Completes = 'file' | 'folder' | 'method' | 'command' | 'container' | 'machine'

export interface Option {
  readonly name: string
  readonly short?: string
  /** Another name, which the help does not show. */
  readonly alias?: string
  /** The name of the value in the help, such as `SECONDS`; a flag has none. */
  readonly value?: string
  /** `optional`: the next word is the value if `accepts` matches it. `list`: values up to the next option. */
  readonly kind?: 'optional' | 'list'
  readonly accepts?: RegExp
  readonly repeated?: boolean
  readonly choices?: readonly string[]
  readonly summary: string
  readonly completes?: Completes
}

export interface Argument {
  readonly name: string
  readonly summary: string
  readonly optional?: boolean
  /** Takes all further words; only the last argument may do so. */
  readonly repeated?: boolean
  /** From its first word on, no word is an option. */
  readonly verbatim?: boolean
  readonly completes?: Completes
  readonly choices?: readonly string[]
}

export const GROUPS = {
  containers: 'Containers and processes',
  observe: 'What the guest does',
  files: 'Files',
  calls: 'Calls',
  tool: 'The tool itself',
} as const

/** A command, as the help, the man page, the completions and docs/reference/agent-ctl.md show it. */
export interface Command {
  /** One word, or two such as `policy set`. */
  readonly name: string
  readonly group: keyof typeof GROUPS
  /** Begins in lower case, without a period. */
  readonly summary: string
  readonly details?: readonly string[]
  readonly arguments?: readonly Argument[]
  readonly options?: readonly Option[]
  readonly examples: readonly (readonly [words: string, does: string])[]
  /** Loads the module on use, so that no command pays for another. */
  readonly load: () => Promise<{ readonly run: RunCommand }>
}

/** Returns the exit status; undefined means 0. */
export type RunCommand = (context: Context) => Promise<number | undefined>

export interface Context {
  readonly commands: readonly Command[]
  readonly values: Values
  readonly env: Readonly<Record<string, string | undefined>>
  readonly io: Stdio
  /** `json` prints one JSON value a line. */
  readonly output: 'text' | 'json'
  readonly colors: boolean
  readonly timeoutMs: number | undefined
  readonly interruptions: Interruptions
  /** Fires when a signal ends the tool. */
  readonly signal: AbortSignal
  /** Connects at the first call; later calls return the same session. The tool closes it. */
  session(): Promise<Session>
  /** Opens another connection to the agent, which the caller closes. */
  dial(): Promise<Duplex>
  /** Connects to another port of the guest; needs no session. */
  dialPort(port: number): Promise<Duplex>
  /** Runs another command line in the same session, and reports its errors. A signal ends only that one. */
  runLine(words: () => readonly string[]): Promise<number>
}

/** A mistake in the command line: exit status 2, and one line that says what to do. */
export class UsageError extends Error {}

/** Ends the command with this exit status, and with the message unless it is empty. */
export class CommandFailure extends Error {
  readonly exitStatus: number

  constructor(exitStatus: number, message: string, options?: ErrorOptions) {
    super(message, options)
    this.exitStatus = exitStatus
  }
}

/** The tool's own exit statuses (docs/agent-ctl.md). */
export const EXIT = {
  /** The agent answered with an error, or a comparison found differences. */
  failed: 1,
  usage: 2,
  /** The agent cannot be reached, or the process cannot be started. */
  cannotRun: START_FAILURE.cannotRun,
} as const

export class Values {
  readonly #options: ReadonlyMap<string, readonly string[]>
  readonly #arguments: ReadonlyMap<string, readonly string[]>

  constructor(
    options: ReadonlyMap<string, readonly string[]>,
    positional: ReadonlyMap<string, readonly string[]>,
  ) {
    this.#options = options
    this.#arguments = positional
  }

  flag(name: string): boolean {
    return this.#options.has(name)
  }

  text(name: string): string | undefined {
    return this.#options.get(name)?.at(-1)
  }

  texts(name: string): readonly string[] {
    return this.#options.get(name) ?? []
  }

  /** Throws {@link UsageError} unless the value is a whole number from `least` to `most`. */
  number(name: string, least: number, most: number): number | undefined {
    const text = this.text(name)
    if (text === undefined) return undefined
    const number = /^\d{1,15}$/.test(text) ? Number(text) : Number.NaN
    if (number >= least && number <= most) return number
    throw new UsageError(`--${name} ${text}: want a whole number from ${least} to ${most}`)
  }

  /** Parses the last value, or `fallback`. Throws {@link UsageError}. */
  parsed<T>(name: string, fallback: string, parse: (text: string) => T): T {
    try {
      return parse(this.text(name) ?? fallback)
    } catch (error) {
      throw new UsageError(`--${name}: ${messageOf(error)}`, { cause: error })
    }
  }

  /** Empty for an optional argument that is missing. */
  argument(name: string): string {
    return this.#arguments.get(name)?.[0] ?? ''
  }

  rest(name: string): readonly string[] {
    return this.#arguments.get(name) ?? []
  }
}
