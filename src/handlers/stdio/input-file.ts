import type { Fd, Streams } from '../../os/streams/streams.ts'
import { DATA_START, JournalPage } from './journal-page.ts'

/** The states of a request in the journal. */
const WRITING = 1
const DONE = 2

/**
 * Input that is on its way to the process, in a file in memory that outlives the agent: the data of one request at a time,
 * and the requests whose answers were not delivered yet. An agent that is killed between any two calls leaves one of
 * these:
 *
 * | the last call | what the next agent finds |
 * |---|---|
 * | the data is in the file | no record of the request: sent again, it is written from its first byte |
 * | its record is written | a request that is being written; the file's position is how far it is |
 * | splice(2) out of the file | the same: bytes and position move in one call |
 * | the record says that it is done | sent again, it is answered and not written |
 * | the answer was delivered: the record is free | nothing |
 */
export class InputFile {
  readonly fd: Fd
  readonly #streams: Streams
  readonly #journal: JournalPage
  /** The requests that were begun, with the places of their records. */
  readonly #begun = new Map<bigint, { readonly place: number; isDone: boolean }>()
  #current: { readonly number: bigint; readonly end: number } | undefined

  /** Goes on with a file that {@link JournalPage.newFile} has made. */
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

  /** Whether one more request can be begun. */
  get hasRoom(): boolean {
    return this.#journal.hasRoom
  }

  /** The request that is being written, and how many of its bytes are still in the file. */
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
    // New memory: a pipe may still refer to that of the request before.
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

  /** All of the current request is written. */
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

  /** Throws the rest of the current request away. */
  abandon(): void {
    const { number = 0n } = this.#current ?? {}
    this.#current = undefined
    this.forget(number)
    this.#streams.truncate(this.fd, DATA_START)
  }

  /** Frees the record of a request. */
  forget(number: bigint): void {
    const request = this.#begun.get(number)
    if (request === undefined) return
    this.#journal.write(request.place, {})
    this.#journal.release(request.place)
    this.#begun.delete(number)
  }

  /** Closes the file. What is forgotten later has no effect. */
  close(): void {
    this.#begun.clear()
    this.#streams.close(this.fd)
  }
}
