import { PassThrough, Readable, Writable } from 'node:stream'
import { Interruptions } from '../../../src/client/terminal/interruptions.ts'
import { runCtl } from '../../../src/ctl/run-ctl.ts'

export interface CtlRun {
  readonly status: number
  readonly stdout: string
  readonly stderr: string
}

/** Without `stdin`, the input never ends; with `columns`, stdout is a terminal of that width. */
export async function ctl(
  words: readonly string[],
  options: {
    readonly stdin?: string | undefined
    readonly columns?: number
    readonly env?: Readonly<Record<string, string>>
    readonly interruptions?: Interruptions
    /** Receives all of stdout so far; the tool's write ends when its promise resolves. */
    readonly onOutput?: (text: string) => unknown
    readonly onErrors?: (text: string) => unknown
  } = {},
): Promise<CtlRun> {
  const stdout = capture(options.onOutput)
  const stderr = capture(options.onErrors)
  const { columns, env = {}, interruptions = new Interruptions() } = options
  const terminal = columns === undefined ? {} : { isTTY: true, columns, rows: 24 }
  const stdin = options.stdin === undefined ? new PassThrough() : Readable.from([Buffer.from(options.stdin)])
  const status = await runCtl(words, {
    io: { stdin, stdout: Object.assign(stdout.stream, terminal), stderr: stderr.stream },
    // Hides the machines of this host.
    env: { MICROVM_REGISTRY: '/nowhere', MICROVM_SOCKET: '/nowhere', ...env },
    interruptions,
  })
  return { status, stdout: stdout.text(), stderr: stderr.text() }
}

function capture(onText?: (text: string) => unknown): { readonly stream: Writable; text(): string } {
  const chunks: Buffer[] = []
  const stream = new Writable({
    write: (chunk, _encoding, done) => {
      chunks.push(Buffer.from(chunk))
      const handled = Promise.resolve(onText?.(Buffer.concat(chunks).toString()))
      handled.then(() => done(), done)
    },
  })
  return { stream, text: () => Buffer.concat(chunks).toString() }
}
