import { messageOf } from '../../base/errors.ts'
import type { RecordingNotes } from './notes.ts'
import { bytesOf, type RecordedCall, type Recording } from './recording.ts'
import type { Answer } from './wire.ts'

/** An output stream of a process, which a shim reads in a loop. */
export class OutputStream {
  readonly firstRead: RecordedCall
  readonly #reads: readonly RecordedCall[]
  /** The whole text, or a pattern for a text that varies. */
  readonly #text: Buffer | RegExp
  readonly #chunks: Buffer[] = []
  #bytes = 0
  readonly #waiters = new Set<() => void>()
  #ended: Promise<void> | undefined
  #state: 'read' | 'at its end' | Error = 'read'

  private constructor(firstRead: RecordedCall, reads: readonly RecordedCall[], text: Buffer | RegExp) {
    this.firstRead = firstRead
    this.#reads = reads
    this.#text = text
  }

  /** Throws when a text is neither recorded whole nor described in the notes. */
  static allOf(recording: Recording, notes: RecordingNotes): readonly OutputStream[] {
    const calls = recording.lines.filter((line) => line.kind === 'call')
    const byStream = Map.groupBy(calls.filter(isRead), keyOf)
    return [...byStream.values()].flatMap((reads) => {
      const [first] = reads
      if (first === undefined) return []
      const text = notes.texts[first.line] ?? wholeText(recording, reads) ?? notes.unknownText
      if (text === undefined)
        throw new Error(`${recording.name}, line ${first.line}: the text is not whole, want one in the notes`)
      return [new OutputStream(first, reads, text)]
    })
  }

  isRead(call: RecordedCall): boolean {
    return this.#reads.includes(call)
  }

  readToEnd(read: () => Promise<Answer>): void {
    this.#ended = this.#readAll(read)
  }

  /** Waits for as much as was read by this time of the recording, and checks the text at its end. */
  async catchUp(ms: number): Promise<void> {
    const answered = this.#reads.filter(({ answer }) => answer !== undefined && answer.atMs <= ms)
    if (answered.length === 0) return
    if (answered.some(isEnd)) await this.finish()
    else if (this.#text instanceof RegExp) await this.#brings(1)
    else await this.#brings(Buffer.concat(answered.map(dataOf)).length)
  }

  async finish(): Promise<void> {
    await this.#ended
    this.#check()
  }

  async #readAll(read: () => Promise<Answer>): Promise<void> {
    try {
      while (this.#state === 'read') {
        const { code, message, response } = await read()
        if (code !== 0) throw new Error(`code ${code}: ${message}`)
        const data = bytesOf(response?.data) ?? Buffer.alloc(0)
        this.#chunks.push(data)
        this.#bytes += data.length
        if (data.length === 0) this.#state = 'at its end'
        for (const look of this.#waiters) look()
      }
    } catch (error) {
      this.#state = new Error(`${messageOf(error)}, after ${this.#shown()}`)
    }
    for (const look of this.#waiters) look()
  }

  async #brings(bytes: number): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>()
    const look = () => {
      if (this.#bytes >= bytes) resolve()
      else if (this.#state instanceof Error) reject(this.#state)
      else if (this.#state === 'at its end')
        reject(new Error(`ended after ${this.#shown()}, want ${this.#wanted()}`))
    }
    this.#waiters.add(look)
    look()
    await promise.finally(() => this.#waiters.delete(look))
  }

  #check(): void {
    if (this.#state instanceof Error) throw this.#state
    const brought = this.#brought()
    const matches =
      this.#text instanceof RegExp ? this.#text.test(brought) : brought === this.#text.toString()
    if (!matches) throw new Error(`brought ${this.#shown()}, want ${this.#wanted()}`)
  }

  #brought(): string {
    return Buffer.concat(this.#chunks).toString()
  }

  #shown(): string {
    return JSON.stringify(this.#brought().slice(0, 2000))
  }

  #wanted(): string {
    return this.#text instanceof RegExp ? `${this.#text}` : JSON.stringify(this.#text.toString())
  }
}

function isRead({ method }: RecordedCall): boolean {
  return method === 'ReadStdout' || method === 'ReadStderr'
}

function keyOf({ method, request: { containerId, execId } }: RecordedCall): string {
  return `${method} ${containerId} ${execId}`
}

function dataOf({ answer }: RecordedCall): Buffer {
  return bytesOf(answer?.response?.data) ?? Buffer.alloc(0)
}

/** An empty read ends a stream. For a large read only the size was recorded. */
function isEnd({ answer }: RecordedCall): boolean {
  return bytesOf(answer?.response?.data)?.length === 0
}

/** undefined when reads were cut out, or the recording ended before the stream. */
function wholeText(recording: Recording, reads: readonly RecordedCall[]): Buffer | undefined {
  const [first, last] = [reads[0], reads.at(-1)]
  if (first === undefined || last === undefined || !isEnd(last)) return undefined
  const isCut = recording.lines.some(
    ({ kind, line }) => kind === 'cut' && line > first.line && line < last.line,
  )
  return isCut ? undefined : Buffer.concat(reads.map(dataOf))
}
