import type { Readable } from 'node:stream'
import { LineSplitter } from './qmp/message.ts'

/** Enough for a kernel panic with its backtrace. */
const KEPT_LINES = 60

/** The last lines of a program's output, such as a guest's serial console; passes every line to its listeners. */
export class ConsoleTail {
  /** Resolves when the output has ended, after its last line. */
  readonly ended: Promise<void>
  readonly #lines: string[] = []
  readonly #listeners = new Set<(line: string) => void>()

  constructor(output: Readable) {
    const splitter = new LineSplitter()
    output.on('data', (chunk: Buffer) => {
      for (const line of splitter.push(chunk)) this.#add(line)
    })
    this.ended = new Promise((resolve) => output.once('close', resolve))
  }

  get lines(): readonly string[] {
    return [...this.#lines]
  }

  /** Calls `listener` with each line from now on, until the returned function is called. */
  onLine(listener: (line: string) => void): () => void {
    this.#listeners.add(listener)
    return () => this.#listeners.delete(listener)
  }

  #add(line: string): void {
    this.#lines.push(line)
    if (this.#lines.length > KEPT_LINES) this.#lines.shift()
    for (const listener of this.#listeners) listener(line)
  }
}

/** Whether vminit or the agent (which writes JSON) wrote the console line, so that the kernel has booted. */
export function isFromUserSpace(line: string): boolean {
  return line.includes('vminit: ') || line.includes('{"msg":')
}

/**
 * Whether the kernel met a breakpoint that it had set itself. QEMU before 8.1 emulates several CPUs so that one may see half
 * of a change that the kernel makes to its code. Seen in one of many hundred boots.
 */
export function isKernelBrokenByEmulation(lines: readonly string[]): boolean {
  return lines.some((line) => line.includes('Oops: int3'))
}
