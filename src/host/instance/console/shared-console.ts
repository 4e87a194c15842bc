import type { Duplex } from 'node:stream'
import { abortable } from '../../../base/abort.ts'
import type { AgentError } from '../../../base/errors.ts'
import { SerialQueue } from '../../../base/serial-queue.ts'
import type { Holder } from '../holder/holder.ts'

/** The ring of the console. */
const CONSOLE = 0

export const CONSOLE_LIMITS = {
  /** What each caller gets of the past, and what one that fell behind goes on with. */
  tailBytes: 64 * 1024,
  /** How far a caller may fall behind before it loses bytes. One buffer serves all callers. */
  behindBytes: 1024 * 1024,
  /** Of one answer. */
  pieceBytes: 32 * 1024,
  /** How long the console waits for its fastest caller. One that takes nothing for so long is not waited for. */
  waitMs: 30,
  /** What one caller types before the others have their turn. */
  typedBytes: 4096,
} as const

/**
 * The console of a machine for all its callers, by one connection to the holder. It reads on whether callers read or not, so
 * that none of them slows the guest.
 */
export class SharedConsole {
  /** Resolves once the holder sends; rejects as the holder does. */
  readonly opened: Promise<void>
  readonly #holder: Holder
  readonly #onOver: () => void
  /** The byte at position p is at p modulo the length. */
  readonly #kept = Buffer.allocUnsafeSlow(CONSOLE_LIMITS.behindBytes)
  #first = 0
  #end = 0
  #stream: Duplex | undefined
  #isOver = false
  #reason: AgentError | undefined
  #callers = 0
  #news = Promise.withResolvers<void>()
  /** Where the caller is that has read furthest. */
  #furthest = 0
  /** Ends the wait for that caller. */
  #timer: NodeJS.Timeout | undefined
  /** That caller has taken nothing during the last wait. */
  #isLate = false
  readonly #typing = new SerialQueue()

  /** `onOver` is called when the console has ended, or the last caller has left. */
  constructor(holder: Holder, onOver: () => void) {
    this.#holder = holder
    this.#onOver = onOver
    const opening = Promise.withResolvers<void>()
    this.opened = opening.promise
    this.opened.catch(() => {})
    void this.#read(opening.resolve).then(opening.resolve, opening.reject)
  }

  /**
   * The last bytes, then all that comes, in pieces that hold for one turn of the event loop. `input` is typed until the caller
   * leaves.
   */
  async *join(input: AsyncIterable<Uint8Array>, signal: AbortSignal): AsyncGenerator<Uint8Array> {
    const left = new AbortController()
    this.#callers += 1
    try {
      await abortable(this.opened, signal)
      // Its end, and the caller's, are told by the output.
      void this.#type(input, left.signal).catch(() => {})
      yield* this.#output(signal)
    } finally {
      left.abort()
      this.#callers -= 1
      if (this.#callers === 0) this.#finish()
    }
  }

  /** Ends it for all callers: they get what has come, and then `reason`. */
  end(reason: AgentError): void {
    this.#reason = reason
    this.#finish()
  }

  async *#output(signal: AbortSignal): AsyncGenerator<Uint8Array> {
    let position = Math.max(this.#first, this.#end - CONSOLE_LIMITS.tailBytes)
    for (;;) {
      if (position < this.#first) {
        const next = Math.max(this.#first, this.#end - CONSOLE_LIMITS.tailBytes)
        yield lostText(next - position)
        position = next
      } else if (position < this.#end) {
        const piece = this.#piece(position)
        position += piece.length
        yield piece
        this.#taken(position)
      } else if (this.#reason !== undefined) throw this.#reason
      else if (this.#isOver) return
      else await abortable(this.#news.promise, signal)
    }
  }

  async #type(input: AsyncIterable<Uint8Array>, left: AbortSignal): Promise<void> {
    for await (const data of input) {
      for (let at = 0; at < data.length; at += CONSOLE_LIMITS.typedBytes) {
        const piece = data.subarray(at, at + CONSOLE_LIMITS.typedBytes)
        await this.#typing.run(() => this.#write(piece), left)
      }
    }
  }

  /** Resolves once the guest, or its holder, has room for more. */
  async #write(data: Uint8Array): Promise<void> {
    const stream = this.#stream
    if (stream === undefined || stream.destroyed || stream.write(data)) return
    await drained(stream)
  }

  async #read(onOpen: () => void): Promise<void> {
    try {
      const rings = await this.#holder.rings()
      const end = rings.find(({ number }) => number === CONSOLE)?.end ?? 0n
      const tail = BigInt(CONSOLE_LIMITS.tailBytes)
      await this.#follow(end > tail ? end - tail : 0n, onOpen)
    } finally {
      this.#finish()
    }
  }

  /** The holder cuts off a reader that falls behind, which then goes on with what is kept. */
  async #follow(from: bigint, onOpen: () => void): Promise<void> {
    for (let [isOver, position] = [false, from]; !isOver && !this.#isOver; position = BigInt(this.#end)) {
      const { first, stream } = await this.#holder.attach(CONSOLE, position)
      // Bytes before it are lost.
      if (first > this.#end) this.#first = this.#end = this.#furthest = Number(first)
      this.#stream = stream
      // The last caller may have left meanwhile.
      if (this.#isOver) return void stream.destroy()
      isOver = true
      onOpen()
      // A stream that ends without a byte has no more of them.
      stream.on('data', (chunk: Buffer) => {
        isOver = false
        this.#add(chunk)
      })
      await new Promise((resolve) => stream.once('close', resolve))
    }
  }

  #add(chunk: Buffer): void {
    const { length } = this.#kept
    const at = this.#end % length
    const fits = Math.min(chunk.length, length - at)
    chunk.copy(this.#kept, at, 0, fits)
    chunk.copy(this.#kept, 0, fits)
    this.#end += chunk.length
    this.#first = Math.max(this.#first, this.#end - length)
    this.#wake()
    if (this.#end - this.#furthest > length / 2 && !this.#isLate) this.#wait()
  }

  /** The holder's ring takes what the console prints meanwhile. */
  #wait(): void {
    this.#stream?.pause()
    this.#timer ??= setTimeout(() => {
      this.#isLate = true
      this.#goOn()
    }, CONSOLE_LIMITS.waitMs)
  }

  #taken(position: number): void {
    if (position <= this.#furthest) return
    this.#furthest = position
    this.#isLate = false
    if (this.#timer === undefined) return
    if (this.#end - position <= this.#kept.length / 2) this.#goOn()
    else this.#timer.refresh()
  }

  #goOn(): void {
    clearTimeout(this.#timer)
    this.#timer = undefined
    this.#stream?.resume()
  }

  /** It holds for this turn of the event loop. */
  #piece(position: number): Buffer {
    const at = position % this.#kept.length
    const bytes = Math.min(CONSOLE_LIMITS.pieceBytes, this.#end - position)
    return this.#kept.subarray(at, at + bytes)
  }

  #wake(): void {
    this.#news.resolve()
    this.#news = Promise.withResolvers()
  }

  #finish(): void {
    if (this.#isOver) return
    this.#isOver = true
    clearTimeout(this.#timer)
    this.#stream?.destroy()
    this.#wake()
    this.#onOver()
  }
}

/** Resolves once the stream has room for more, or is closed. */
export function drained(stream: Duplex): Promise<void> {
  return new Promise((resolve) => {
    const wake = () => {
      stream.off('drain', wake).off('close', wake)
      resolve()
    }
    stream.on('drain', wake).on('close', wake)
  })
}

/** A line of its own, whatever the guest was printing. */
function lostText(bytes: number): Uint8Array {
  return Buffer.from(`\r\n[microvm: ${bytes} bytes of the console were lost here]\r\n`)
}
