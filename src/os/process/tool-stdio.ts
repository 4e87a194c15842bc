import type { Fd, Streams } from '../streams/streams.ts'
import type { ToolResult, Tools } from './tools.ts'

type Options = NonNullable<Parameters<Tools['run']>[1]>

const DEFAULT_MAX_OUTPUT_BYTES = 64 * 1024
const READ_BYTES = 64 * 1024

export interface ToolStdio {
  /** The program's ends; undefined is /dev/null. */
  readonly childEnds: readonly (Fd | undefined)[]
  /** Writes the input and collects the outputs, once the program runs. Resolves when both outputs have ended, if any. */
  exchange(): Promise<void> | undefined
  text(): Pick<ToolResult, 'stdout' | 'stderr'>
  close(): void
}

export function openToolStdio(streams: Streams, options: Options): ToolStdio {
  const limit = options.maxOutputBytes ?? DEFAULT_MAX_OUTPUT_BYTES
  const texts = { stdout: new BoundedText(limit), stderr: new BoundedText(limit) }
  const pipes = new ToolPipes(streams)
  const [stdin, stdout, stderr] = options.stdio ?? []
  try {
    const input = options.stdin
    const childEnds = [
      stdin ?? (input === undefined ? undefined : pipes.feeding(Buffer.from(input))),
      stdout ?? (options.dropsStdout === true ? undefined : pipes.collecting(texts.stdout)),
      stderr ?? pipes.collecting(texts.stderr),
    ]
    return {
      childEnds,
      exchange: () => pipes.exchange(),
      text: () => ({
        stdout: texts.stdout.text(options.encoding),
        stderr: texts.stderr.text(options.encoding),
      }),
      close: () => pipes.close(),
    }
  } catch (error) {
    pipes.close()
    throw error
  }
}

class ToolPipes {
  readonly #streams: Streams
  readonly #open = new Set<Fd>()
  readonly #childEnds: Fd[] = []
  readonly #feeds: (() => Promise<void>)[] = []
  readonly #collections: (() => Promise<void>)[] = []

  constructor(streams: Streams) {
    this.#streams = streams
  }

  feeding(input: Buffer): Fd {
    const { parentEnd, childEnd } = this.#pipe('child-reads')
    this.#feeds.push(() => this.#feed(parentEnd, input))
    return childEnd
  }

  collecting(text: BoundedText): Fd {
    const { parentEnd, childEnd } = this.#pipe('child-writes')
    this.#collections.push(() => this.#collect(parentEnd, text))
    return childEnd
  }

  exchange(): Promise<void> | undefined {
    for (const fd of this.#childEnds) this.#close(fd)
    for (const feed of this.#feeds) void feed()
    if (this.#collections.length === 0) return undefined
    return Promise.all(this.#collections.map((collect) => collect())).then(() => {})
  }

  close(): void {
    for (const fd of this.#open) this.#close(fd)
  }

  #pipe(direction: 'child-reads' | 'child-writes') {
    const pipe = this.#streams.pipe(direction)
    this.#open.add(pipe.parentEnd).add(pipe.childEnd)
    this.#childEnds.push(pipe.childEnd)
    return pipe
  }

  #close(fd: Fd): void {
    if (this.#open.delete(fd)) this.#streams.close(fd)
  }

  /** Never rejects: the exit code says whether it matters that the program did not read everything. */
  async #feed(fd: Fd, input: Buffer): Promise<void> {
    try {
      for (let rest = input; rest.length > 0; ) {
        await this.#streams.writable(fd)
        rest = rest.subarray(this.#streams.tryWrite(fd, rest))
      }
    } catch {
      // EPIPE, or EBADF after a close.
    }
    this.#close(fd)
  }

  /** Reads once per turn of the event loop, so that other work can run. Never rejects. */
  async #collect(fd: Fd, text: BoundedText): Promise<void> {
    try {
      for (;;) {
        await this.#streams.readable(fd)
        const chunk = this.#streams.tryRead(fd, READ_BYTES)
        if (chunk?.length === 0) break
        if (chunk !== undefined) text.add(chunk)
      }
    } catch {
      // EBADF after a close.
    }
    this.#close(fd)
  }
}

/** The text ends with a note of how many bytes were dropped. */
class BoundedText {
  readonly #maxBytes: number
  readonly #chunks: Buffer[] = []
  #keptBytes = 0
  #droppedBytes = 0

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes
  }

  add(chunk: Buffer): void {
    const kept = chunk.subarray(0, this.#maxBytes - this.#keptBytes)
    if (kept.length > 0) this.#chunks.push(kept)
    this.#keptBytes += kept.length
    this.#droppedBytes += chunk.length - kept.length
  }

  text(encoding: 'utf8' | 'latin1' = 'utf8'): string {
    const kept = Buffer.concat(this.#chunks).toString(encoding)
    return this.#droppedBytes === 0 ? kept : `${kept}\n[${this.#droppedBytes} more bytes dropped]`
  }
}
