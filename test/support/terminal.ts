import { type IPty, spawn } from '@lydell/node-pty'
import { expect } from 'vitest'

export class Terminal {
  readonly #pty: IPty
  /** The program's output since the last awaited text. */
  #unread = ''
  #look: (() => void) | undefined
  readonly exited: Promise<number>

  constructor(
    [program = '', ...words]: readonly string[],
    {
      columns = 77,
      env = {},
      rows = 33,
    }: { columns?: number; env?: Record<string, string>; rows?: number } = {},
  ) {
    const ended = Promise.withResolvers<number>()
    this.exited = ended.promise
    this.#pty = spawn(program, words, { cols: columns, rows, env: { PATH: process.env.PATH, ...env } })
    this.#pty.onData((text) => {
      this.#unread += text
      this.#look?.()
    })
    this.#pty.onExit(({ exitCode, signal }) => ended.resolve(signal ? 128 + signal : exitCode))
  }

  get pid(): number {
    return this.#pty.pid
  }

  get unread(): string {
    return this.#unread
  }

  /** Waits for a text, and consumes and returns everything up to its end. Fails when the program ends first. */
  async shows(text: string): Promise<string> {
    const found = Promise.withResolvers<string>()
    this.#look = () => {
      const at = this.#unread.indexOf(text)
      if (at < 0) return
      const end = at + text.length
      found.resolve(this.#unread.slice(0, end))
      this.#unread = this.#unread.slice(end)
    }
    this.#look()
    const ended = this.exited.then((status) => {
      this.#look?.()
      throw new Error(
        `ended with ${status} before ${JSON.stringify(text)}: ${JSON.stringify(this.#unread.slice(-2000))}`,
      )
    })
    try {
      return await Promise.race([found.promise, ended])
    } finally {
      this.#look = undefined
    }
  }

  type(text: string): void {
    this.#pty.write(text)
  }

  resize(columns: number, rows: number): void {
    this.#pty.resize(columns, rows)
  }

  kill(signal?: string): void {
    this.#pty.kill(signal)
  }
}

/** Expects that a shell with `-it` behaves as on a terminal of 33 × 77, and ends it with status 5. */
export async function expectShell(terminal: Terminal): Promise<void> {
  // Quotes split the awaited words, so that the echo of the input is not mistaken for an answer.
  terminal.type('echo "size" "$(stty size)"\n')
  // A single \r shows that the program runs on the terminal itself.
  await terminal.shows('size 33 77')
  expect(await terminal.shows('\n')).toBe('\r\n')
  terminal.resize(100, 40)
  terminal.type('until [ "$(stty size)" = "40 100" ]; do sleep 0.1; done; echo re""sized\n')
  await terminal.shows('resized')
  terminal.type('sh -c \'echo st""arted; exec sleep 1000\'\n')
  await terminal.shows('started')
  terminal.type('\x03')
  terminal.type('echo al""ive $?\n')
  await terminal.shows('alive 130')
  terminal.type('exit 5\n')
  expect(await terminal.exited).toBe(5)
}
