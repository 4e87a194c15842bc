import { PassThrough, Readable, Writable } from 'node:stream'
import { Interruptions } from '../../../src/client/terminal/interruptions.ts'
import { parseCommandLine } from '../../../src/microvm/command-line/parse.mjs'
import { runMachineCommand } from '../../../src/microvm/machines/run-machine-command.ts'
import { reporterOn } from '../../../src/microvm/run/reporter.ts'

export interface MicrovmRun {
  readonly status: number
  readonly stdout: string
  readonly stderr: string
}

/** Runs a command for machines of the daemon in this process. Without `stdin`, the input never ends. */
export async function microvm(
  words: readonly string[],
  options: {
    readonly stdin?: string | Readable
    readonly env?: Readonly<Record<string, string>>
    readonly interruptions?: Interruptions
    /** Whether stderr is a terminal. */
    readonly isTerminal?: boolean
    /** Receives all of stdout so far. */
    readonly onOutput?: (text: string) => void
    readonly onErrors?: (text: string) => void
  } = {},
): Promise<MicrovmRun> {
  const commandLine = parseCommandLine(words)
  if (commandLine.kind !== 'command') throw new Error(`${words.join(' ')}: not a command for machines`)
  const [stdout, stderr] = [capture(options.onOutput), capture(options.onErrors)]
  if (options.isTerminal) Object.assign(stderr.stream, { isTTY: true })
  const { env = {}, interruptions = new Interruptions(), stdin = new PassThrough() } = options
  const status = await runMachineCommand(commandLine.command.name, commandLine.values, {
    stdio: {
      stdin: typeof stdin === 'string' ? Readable.from([Buffer.from(stdin)]) : stdin,
      stdout: stdout.stream,
      stderr: stderr.stream,
    },
    env: { MICROVM_SOCKET: '/nowhere.sock', ...env },
    reporter: reporterOn(stderr.stream, { tty: false, verbose: false }),
    interruptions,
  })
  return { status, stdout: stdout.text(), stderr: stderr.text() }
}

function capture(onText: ((text: string) => void) | undefined): {
  readonly stream: Writable
  text(): string
} {
  const chunks: Buffer[] = []
  const text = () => Buffer.concat(chunks).toString()
  const stream = new Writable({
    write: (chunk, _encoding, done) => {
      chunks.push(Buffer.from(chunk))
      onText?.(text())
      done()
    },
  })
  return { stream, text }
}
