import { messageOf } from '../base/errors.ts'
import { startFailureStatus } from '../client/container/start-failure.ts'
import { Interrupted, Interruptions } from '../client/terminal/interruptions.ts'
import { parseCommandLine } from './command-line/parse.mjs'
import { UsageError } from './command-line/usage-error.mjs'
import { GuestFailure } from './run/guest-failure.ts'
import { type Reporter, reporterOn } from './run/reporter.ts'
import type { runCommand } from './run/run-command.ts'

const USAGE = 2

/** Runs the command line of `./microvm` on this process's stdio and signals. Returns the exit status. */
export async function runTool(argv: readonly string[], run: typeof runCommand): Promise<number> {
  const interruptions = new Interruptions()
  interruptions.listen()
  // Writers handle a failed write themselves. Without a listener its error would also end the process.
  for (const output of [process.stdout, process.stderr]) output.on('error', () => {})
  try {
    const commandLine = parseCommandLine(argv)
    if (commandLine.kind === 'text') {
      process.stdout.write(commandLine.text)
      return 0
    }
    const { stdin, stdout, stderr, env } = process
    const stdio = { stdin, stdout, stderr }
    if (commandLine.kind !== 'run') {
      const { runMachineCommand } = await import('./machines/run-machine-command.ts')
      const reporter = reporterOn(stderr, { tty: false, verbose: false })
      const [name, values] =
        commandLine.kind === 'keys' ? ['keys', new Map()] : [commandLine.command.name, commandLine.values]
      return await runMachineCommand(name, values, { stdio, env, reporter, interruptions })
    }
    const { options } = commandLine
    const reporter = reporterOn(stderr, options)
    try {
      return await run(options, {
        stdio,
        environment: env,
        reporter,
        interruptions,
      })
    } catch (error) {
      return exitStatusOf(error, reporter)
    }
  } catch (error) {
    return exitStatusOf(error, reporterOn(process.stderr, { tty: false, verbose: false }))
  }
}

function exitStatusOf(error: unknown, reporter: Reporter): number {
  if (error instanceof Interrupted) return error.exitStatus
  if (error instanceof UsageError) {
    reporter.failure(error.message, [])
    return USAGE
  }
  reporter.failure(messageOf(error), error instanceof GuestFailure ? error.consoleLines : [])
  return startFailureStatus(error)
}
