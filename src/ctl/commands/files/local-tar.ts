import { type ChildProcessWithoutNullStreams, spawn } from 'node:child_process'
import { once } from 'node:events'
import { PassThrough } from 'node:stream'
import { errnoOf, messageOf } from '../../../base/errors.ts'
import { CommandFailure, EXIT } from '../../command.ts'

export interface TarEnd {
  readonly status: number
  readonly errors: string
}

/** A tar of this machine. The owner calls `end` or `kill`. */
export class LocalTar {
  readonly #child: ChildProcessWithoutNullStreams
  readonly #end: Promise<TarEnd>
  readonly #output: PassThrough

  constructor(words: readonly string[]) {
    this.#child = spawn('tar', [...words], { env: { ...process.env, LC_ALL: 'C' } })
    this.#end = endOf(this.#child)
    this.#end.catch(() => {})
    // Piped at once: Node drops the output of a child that ends before its stdout is read.
    this.#output = this.#child.stdout.pipe(new PassThrough())
    // `write` reports the same error.
    this.#child.stdin.on('error', () => {})
  }

  output(): AsyncIterable<Buffer> {
    return this.#output
  }

  /** Returns whether tar still reads. */
  async write(data: Uint8Array): Promise<boolean> {
    return await new Promise((resolve) => this.#child.stdin.write(data, (error) => resolve(!error)))
  }

  /** Closes stdin and waits for the exit. Throws when tar is not installed. */
  async end(): Promise<TarEnd> {
    this.#child.stdin.end()
    return await this.#end
  }

  kill(): void {
    this.#child.kill('SIGKILL')
  }
}

async function endOf(child: ChildProcessWithoutNullStreams): Promise<TarEnd> {
  let errors = ''
  child.stderr.on('data', (chunk: Buffer) => {
    if (errors.length < MOST_ERROR_BYTES) errors += chunk.toString()
  })
  try {
    const [code, signal] = await once(child, 'close')
    return { status: code ?? 128, errors: errors.trim() || (signal ? `tar: ended by ${signal}` : '') }
  } catch (error) {
    const text = errnoOf(error) === 'ENOENT' ? 'not found' : messageOf(error)
    throw new CommandFailure(EXIT.cannotRun, `tar: ${text}, want tar installed on this machine`, {
      cause: error,
    })
  }
}

const MOST_ERROR_BYTES = 16 << 10
