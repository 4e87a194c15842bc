import type { Duplex } from 'node:stream'
import { messageOf } from '../base/errors.ts'
import type { Stdio } from '../client/container/attach.ts'
import { START_FAILURE } from '../client/container/start-failure.ts'
import type { Session } from '../client/open-session.ts'
import type { Interruptions } from '../client/terminal/interruptions.ts'

/** What a shell completes a word with. */
export type Completes = 'file' | 'folder' | 'method' | 'command' | 'container' | 'machine'

/** An option of a command, written `--name`, `--name VALUE` or `--name=VALUE`. */
export interface Option {
  readonly name: string
  /** One letter, written `-x`. */
  readonly short?: string
  /** Another name, which the help does not show. */
  readonly alias?: string
  /** The name of its value in the help, such as `SECONDS`. Without it the option is a flag. */
  readonly value?: string
  /**
   * `optional`: the value may be left out, and is then taken from the next word only if `accepts` matches it. `list`: all
   * words up to the next option are values. A flag has no kind.
   */
  readonly kind?: 'optional' | 'list'
  readonly accepts?: RegExp
  /** It may be given more than once. */
  readonly repeated?: boolean
  readonly choices?: readonly string[]
  readonly summary: string
  readonly completes?: Completes
}

/** A word of a command that is no option. */
export interface Argument {
  readonly name: string
  readonly summary: string
  readonly optional?: boolean
  /** All further words; a command has at most one such argument, the last. */
  readonly repeated?: boolean
  /** From its first word on nothing is an option of the tool. */
  readonly verbatim?: boolean
  readonly completes?: Completes
  readonly choices?: readonly string[]
}

/** The parts of the help that commands are shown in. */
export const GROUPS = {
  containers: 'Containers and processes',
  observe: 'What the guest does',
  files: 'Files',
  calls: 'Calls',
  tool: 'The tool itself',
} as const

/** One command: its line in the help, the man page, the completions and docs/reference/agent-ctl.md, and the module that runs it. */
export interface Command {
  /** One word, or two such as `policy set`. */
  readonly name: string
  readonly group: keyof typeof GROUPS
  /** Begins in lower case, without a period. */
  readonly summary: string
  /** Further paragraphs. */
  readonly details?: readonly string[]
  readonly arguments?: readonly Argument[]
  readonly options?: readonly Option[]
  /** Words after `agent-ctl`, and what they do. */
  readonly examples: readonly (readonly [words: string, does: string])[]
  /** Loads its module, so that no command pays for another. */
  readonly load: () => Promise<{ readonly run: RunCommand }>
}

/** Runs a command and returns the exit status; nothing is 0. */
export type RunCommand = (context: Context) => Promise<number | undefined>

/** What a command is given. */
export interface Context {
  /** Every command, for the help. */
  readonly commands: readonly Command[]
  readonly values: Values
  readonly env: Readonly<Record<string, string | undefined>>
  readonly io: Stdio
  /** `json`: one JSON value a line, for programs. */
  readonly output: 'text' | 'json'
  /** Whether stdout may have colours. */
  readonly colors: boolean
  /** The limit of a call, if the command line has one. */
  readonly timeoutMs: number | undefined
  readonly interruptions: Interruptions
  /** Fires when a signal ends the tool. */
  readonly signal: AbortSignal
  /** Connects to the agent of the command line; every call returns the same session. The tool closes it. */
  session(): Promise<Session>
  /** Makes a further connection to the same agent, which the caller closes. */
  dial(): Promise<Duplex>
  /** Connects to another port of the agent's guest, of which no session is needed. */
  dialPort(port: number): Promise<Duplex>
  /**
   * Runs another command line of the tool in the same session. Its errors, those of `words` too, go to stderr. A signal
   * ends it alone.
   */
  runLine(words: () => readonly string[]): Promise<number>
}

/** A mistake in the command line. One line that says what to do; the exit status is 2. */
export class UsageError extends Error {}

/** A command ends with this exit status, and the message if there is one. */
export class CommandFailure extends Error {
  readonly exitStatus: number

  constructor(exitStatus: number, message: string, options?: ErrorOptions) {
    super(message, options)
    this.exitStatus = exitStatus
  }
}

/** Exit statuses of the tool's own, besides that of a process (as docker's, see docs/agent-ctl.md). */
export const EXIT = {
  /** The agent answered a call with an error, or a comparison found differences. */
  failed: 1,
  usage: 2,
  /** The agent cannot be reached, or the process could not be started. */
  cannotRun: START_FAILURE.cannotRun,
} as const

/** The options and arguments of one command line, by the names of the table. */
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

  /** Whether the option is there, with or without a value. */
  flag(name: string): boolean {
    return this.#options.has(name)
  }

  /** The last value of an option. */
  text(name: string): string | undefined {
    return this.#options.get(name)?.at(-1)
  }

  /** All values of an option that may be repeated. */
  texts(name: string): readonly string[] {
    return this.#options.get(name) ?? []
  }

  /** A whole number from `least` to `most`. Throws {@link UsageError}. */
  number(name: string, least: number, most: number): number | undefined {
    const text = this.text(name)
    if (text === undefined) return undefined
    const number = /^\d{1,15}$/.test(text) ? Number(text) : Number.NaN
    if (number >= least && number <= most) return number
    throw new UsageError(`--${name} ${text}: want a whole number from ${least} to ${most}`)
  }

  /** What `parse` makes of the last value, or of `fallback` without one. Throws {@link UsageError}. */
  parsed<T>(name: string, fallback: string, parse: (text: string) => T): T {
    try {
      return parse(this.text(name) ?? fallback)
    } catch (error) {
      throw new UsageError(`--${name}: ${messageOf(error)}`, { cause: error })
    }
  }

  /** An argument, empty when it is optional and was left out. */
  argument(name: string): string {
    return this.#arguments.get(name)?.[0] ?? ''
  }

  /** The words of a repeated argument. */
  rest(name: string): readonly string[] {
    return this.#arguments.get(name) ?? []
  }
}
