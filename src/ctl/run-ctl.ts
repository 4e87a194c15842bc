import { setTimeout as delay } from 'node:timers/promises'
import { styleText } from 'node:util'
import packageJson from '../../package.json' with { type: 'json' }
import { abortable } from '../base/abort.ts'
import { AgentError, messageOf } from '../base/errors.ts'
import type { Stdio } from '../client/container/attach.ts'
import { OutputClosed } from '../client/container/stdio.ts'
import { plainText } from '../client/output/text.ts'
import { Interrupted, Interruptions } from '../client/terminal/interruptions.ts'
import { CommandFailure, type Context, EXIT, UsageError, type Values } from './command.ts'
import { parseDuration } from './command-line/duration.ts'
import { parseCommandLine } from './command-line/parse.ts'
import { COMMANDS } from './commands/table.ts'
import { LazySession } from './lazy-session.ts'

export interface CtlHost {
  readonly io: Stdio & { readonly stderr: { readonly isTTY?: boolean } }
  readonly env: Readonly<Record<string, string | undefined>>
  readonly interruptions: Interruptions
}

/** Runs a command line and returns the exit status. Writes errors to stderr, one line each. */
export async function runCtl(argv: readonly string[], host: CtlHost): Promise<number> {
  // Writers handle a failed write. Without a listener its error would end the process.
  for (const output of [host.io.stdout, host.io.stderr]) output.on('error', () => {})
  return await statusOfRun(runCommandLine(argv, host), host)
}

async function statusOfRun(running: Promise<number>, { env, interruptions, io }: CtlHost): Promise<number> {
  try {
    return await abortable(running, interruptions.signal)
  } catch (error) {
    // The command may have to undo what it has begun.
    if (interruptions.signal.aborted) await settled(running)
    if (error instanceof Interrupted) return error.exitStatus
    if (error instanceof OutputClosed) return BROKEN_PIPE_STATUS
    // A container may have chosen a part of the text.
    const text = plainText(messageOf(error).replace(/\s*\n\s*/g, ' '))
    if (text !== '') {
      const isColored = colorsOn(io.stderr, env)
      const name = isColored ? styleText('red', 'agent-ctl:', { validateStream: false }) : 'agent-ctl:'
      io.stderr.write(`${name} ${text}\n`)
    }
    return statusOf(error)
  }
}

/** Waits only a short time, because an interrupted command may wait for its user. */
async function settled(running: Promise<number>): Promise<void> {
  const ended = running.then(
    () => {},
    () => {},
  )
  await Promise.race([ended, delay(UNDO_MS, undefined, { ref: false })])
}

const UNDO_MS = 2000

/** 128 + SIGPIPE, as of a program that does not handle it. */
const BROKEN_PIPE_STATUS = 141

function statusOf(error: unknown): number {
  if (error instanceof UsageError) return EXIT.usage
  if (error instanceof CommandFailure) return error.exitStatus
  return error instanceof AgentError && error.code !== 'UNAVAILABLE' ? EXIT.failed : EXIT.cannotRun
}

/** Runs a command line, in the session `shared` if there is one. */
async function runCommandLine(argv: readonly string[], host: CtlHost, shared?: LazySession): Promise<number> {
  const parsed = parseCommandLine(argv, COMMANDS, await methodsFor(argv))
  if (parsed.kind === 'version') {
    host.io.stdout.write(`agent-ctl ${packageJson.version}\n`)
    return 0
  }
  if (parsed.kind === 'help') {
    const { showHelp } = await import('./commands/tool/help.ts')
    await showHelp({ io: host.io, commands: COMMANDS }, parsed.command, parsed.words)
    return 0
  }
  const { command, values } = parsed
  const { env, io, interruptions } = host
  const session = shared ?? new LazySession({ values, env, signal: interruptions.signal, stderr: io.stderr })
  try {
    const { run } = await command.load()
    return (await run(contextOf(host, values, session))) ?? 0
  } finally {
    if (shared === undefined) await session.close()
  }
}

/** Runs a line of the tool's shell. Meanwhile the tool's signals go to that line alone. */
async function runLine(words: () => readonly string[], host: CtlHost, session: LazySession): Promise<number> {
  const interruptions = new Interruptions()
  const forward = () => {
    interruptions.receive('SIGINT')
    host.interruptions.forwardNext(forward)
  }
  host.interruptions.forwardNext(forward)
  const own = { ...host, interruptions }
  try {
    const run = async () => await runCommandLine(words(), own, session)
    return await statusOfRun(run(), own)
  } finally {
    host.interruptions.forwardNext(undefined)
  }
}

/** Loads the names of calls only when no word is a command, because `ps` must not pay for them. */
async function methodsFor(argv: readonly string[]): Promise<readonly string[]> {
  if (argv.some((word) => COMMANDS.some(({ name }) => name.split(' ')[0] === word))) return []
  const { METHODS } = await import('./methods/method-names.ts')
  return METHODS.map(({ method }) => method)
}

function contextOf(host: CtlHost, values: Values, session: LazySession): Context {
  const { env, interruptions, io } = host
  const timeout = values.text('timeout')
  const color = values.text('color') ?? 'auto'
  return {
    commands: COMMANDS,
    values,
    env,
    io,
    output: values.text('output') === 'json' ? 'json' : 'text',
    colors: color === 'always' || (color === 'auto' && colorsOn(io.stdout, env)),
    timeoutMs: timeout === undefined ? undefined : parseDuration('--timeout', timeout),
    interruptions,
    signal: interruptions.signal,
    session: () => session.open(),
    dial: () => session.dial(),
    dialPort: (port) => session.dialPort(port),
    runLine: (words) => runLine(words, host, session),
  }
}

function colorsOn(stream: { readonly isTTY?: boolean }, { NO_COLOR, TERM }: CtlHost['env']): boolean {
  return stream.isTTY === true && (NO_COLOR ?? '') === '' && TERM !== 'dumb'
}
