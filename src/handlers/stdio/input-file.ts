import type { Fd, Streams } from '../../os/streams/streams.ts'
import { DATA_START, JournalPage } from './journal-page.ts'

const WRITING = 1
const DONE = 2

/**
 * The input of one request at a time on its way to the process, and the requests whose answers are not delivered yet. This
 * file in memory survives the agent. When the agent is killed after one of these calls, the next agent finds:
 *
 * | last call | state |
 * |---|---|
 * | write of the data | no record: the request is sent again and written from its first byte |
 * | write of its record | an unfinished request; the file's position tells how much was moved |
 * | splice(2) out of the file | the same: one call moves bytes and position |
 * | write of the record as done | the request is answered again and not written |
 * | free of the record, after delivery | nothing |
 */
export class InputFile {
  readonly fd: Fd
  readonly #streams: Streams
  readonly #journal: JournalPage
  readonly #begun = new Map<bigint, { readonly place: number; isDone: boolean }>()
  #current: { readonly number: bigint; readonly end: number } | undefined

  /** `fd` is a file of {@link JournalPage.newFile}, new or left by the previous agent. */
  constructor(streams: Streams, fd: Fd) {
    this.fd = fd
    this.#streams = streams
    this.#journal = new JournalPage(streams, fd)
    for (const [place, { number, length, state }] of this.#journal.readUsed(() => true)) {
      this.#begun.set(number, { place, isDone: state === DONE })
      if (state !== DONE) this.#current = { number, end: DATA_START + length }
    }
  }

  get numbers(): readonly bigint[] {
    return [...this.#begun.keys()]
  }

  get hasRoom(): boolean {
    return this.#journal.hasRoom
  }

  /** The request that is being written; `restBytes` are still in the file. */
  get current(): { readonly number: bigint; readonly restBytes: number } | undefined {
    if (this.#current === undefined) return undefined
    const { number, end } = this.#current
    return { number, restBytes: end - this.#streams.position(this.fd) }
  }

  isDone(number: bigint): boolean {
    return this.#begun.get(number)?.isDone ?? false
  }

  /** A request without a number has no record: it is not sent again. */
  begin(data: Uint8Array, number: bigint): void {
    // Get new pages: a pipe may still refer to the pages of the previous request.
    this.#streams.truncate(this.fd, DATA_START)
    this.#streams.setPosition(this.fd, DATA_START)
    this.#streams.writeAt(this.fd, DATA_START, data)
    if (number !== 0n) {
      const place = this.#journal.reserve()
      this.#begun.set(number, { place, isDone: false })
      this.#journal.write(place, { number, length: data.length, state: WRITING })
    }
    this.#current = { number, end: DATA_START + data.length }
  }

  finish(): void {
    const { number = 0n } = this.#current ?? {}
    const request = this.#begun.get(number)
    this.#current = undefined
    if (request !== undefined) {
      request.isDone = true
      this.#journal.write(request.place, { number, state: DONE })
    }
    this.#streams.truncate(this.fd, DATA_START)
  }

  abandon(): void {
    const { number = 0n } = this.#current ?? {}
    this.#current = undefined
    this.forget(number)
    this.#streams.truncate(this.fd, DATA_START)
  }

  forget(number: bigint): void {
    const request = this.#begun.get(number)
    if (request === undefined) return
    this.#journal.write(request.place, {})
    this.#journal.release(request.place)
    this.#begun.delete(number)
  }

  /** A later `forget` has no effect. */
  close(): void {
    this.#begun.clear()
    this.#streams.close(this.fd)
  }
}
