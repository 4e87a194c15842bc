import type { Fd, Streams } from '../../os/streams/streams.ts'
import type { TakenByRequests } from '../../state/request.ts'
import { DATA_START, JournalPage } from './journal-page.ts'
import type { OutputRead } from './process-streams.ts'

/** The states of a range in the journal; a range of the file without a record is unread. */
const TAKEN = 1
const DISCARDED = 2
/** Taken by a read with a name: only another read tells that it has arrived. */
const NAMED = 3

/** Until all output is discarded, the memory of discarded output is released in pieces of at least this size. */
const PUNCHED_BYTES = 2 ** 20

/** The number of a request, or of the name of a read. */
export interface OutputTaker {
  readonly number: bigint
  readonly isNamed: boolean
}

/** Bytes that a request has taken; they are read only when needed. */
class Range implements OutputRead {
  isDiscarded = false
  /** Of a read with a name: whether some answer may have arrived, and how many are on their way. */
  mayHaveArrived = false
  answers = 0
  readonly #file: OutputFile
  readonly start: number
  readonly length: number
  /** The place of its record in the journal. */
  readonly record: number
  readonly number: bigint
  readonly isNamed: boolean
  #bytes: Uint8Array | undefined

  constructor(
    file: OutputFile,
    {
      start,
      length,
      record,
      number,
      isNamed,
    }: Pick<Range, 'isNamed' | 'length' | 'number' | 'record' | 'start'>,
  ) {
    this.#file = file
    this.start = start
    this.length = length
    this.record = record
    this.number = number
    this.isNamed = isNamed
  }

  get place(): { readonly fd: Fd; readonly offset: number } | undefined {
    return this.#bytes === undefined ? { fd: this.#file.fd, offset: this.start } : undefined
  }

  get data(): Uint8Array {
    this.#bytes ??= this.#file.bytesOf(this)
    return this.#bytes
  }

  read(): Uint8Array {
    return this.data
  }

  delivered(): void {
    this.#file.settle(this, true)
  }

  dropped(): void {
    this.#file.settle(this, false)
  }
}

/**
 * Output that was read from the process and is not delivered yet, in a file in memory that survives the agent. The file's
 * position is the end of the output. When the agent is killed after one of these calls, the next agent finds:
 *
 * | last call | state |
 * |---|---|
 * | splice(2) into the file | bytes before the position without a record: they are unread |
 * | write of a read's record (number, range) | the request has the range: sent again, it gets the same bytes |
 * | delivery: the first record gets a new discarded offset or, behind a range that is out, the range's record becomes discarded | those bytes are gone |
 * | free of the record, after the answer was dropped | the range is unread again |
 * | position back to the start of an empty file, before the first record gets a new epoch | a position before the discarded offset: empty |
 */
export class OutputFile implements TakenByRequests {
  readonly fd: Fd
  readonly #streams: Streams
  readonly #changed: () => void
  readonly #journal: JournalPage
  /** Ranges that are out, or discarded behind one that is out, in stream order. */
  readonly #ranges: Range[] = []
  #epoch: number
  /** Everything before this offset is gone. */
  #discarded: number
  #end: number
  /** The memory before this offset was released. */
  #punched = DATA_START
  /** Whether only the journal has memory. */
  isTrimmed = false
  movedBytes = 0
  #isSealed = false

  /** `fd` is a file of {@link JournalPage.newFile}. `changed` is called when bytes become unread or a record free. */
  constructor(streams: Streams, fd: Fd, changed: () => void) {
    this.fd = fd
    this.#streams = streams
    this.#changed = changed
    this.#journal = new JournalPage(streams, fd)
    const { start, epoch } = this.#journal.readFirst()
    this.#epoch = epoch
    this.#discarded = Math.max(start, DATA_START)
    this.#end = streams.position(fd)
    if (this.#end < this.#discarded) this.#restart()
    else this.#readRanges()
  }

  #readRanges(): void {
    const used = this.#journal.readUsed(
      ({ epoch, start, length }) => epoch === this.#epoch && start + length > this.#discarded,
    )
    for (const [record, { state, ...rest }] of used) {
      const range = new Range(this, { ...rest, record, isNamed: state === NAMED })
      range.isDiscarded = state === DISCARDED
      range.mayHaveArrived = range.isNamed
      this.#insert(range)
    }
  }

  get hasRoom(): boolean {
    return this.#journal.hasRoom
  }

  get taken(): readonly (readonly [bigint, OutputRead])[] {
    const taken = this.#ranges.filter(({ isDiscarded, isNamed }) => !isDiscarded && !isNamed)
    return taken.map((range) => [range.number, range])
  }

  get unread(): { readonly start: number; readonly length: number } | undefined {
    let start = this.#discarded
    for (const range of this.#ranges) {
      if (range.start > start) return { start, length: range.start - start }
      start = range.start + range.length
    }
    return start < this.#end ? { start, length: this.#end - start } : undefined
  }

  /** Returns as {@link Streams.move} does. */
  moveFrom(pipe: Fd, maxBytes: number): number | undefined {
    const moved = this.#streams.move(pipe, this.fd, maxBytes)
    this.#end += moved ?? 0
    if (moved !== undefined && moved > 0) {
      this.isTrimmed = false
      this.movedBytes += moved
    }
    return moved
  }

  last(bytes: number): Uint8Array {
    return this.#streams.readAt(this.fd, this.#end - bytes, bytes)
  }

  take(start: number, length: number, { number, isNamed }: OutputTaker): OutputRead {
    const range = new Range(this, { start, length, record: this.#journal.reserve(), number, isNamed })
    // A request without a number is not sent again: the next agent finds its bytes unread.
    if (number !== 0n) this.#write(range, isNamed ? NAMED : TAKEN)
    this.#insert(range)
    range.answers += 1
    return range
  }

  takenBy(number: bigint): OutputRead | undefined {
    if (number === 0n) return undefined
    const range = this.#ranges.find((one) => one.number === number && !one.isDiscarded)
    if (range !== undefined) range.answers += 1
    return range
  }

  /** Another read begins: the answers to earlier reads with names have arrived. */
  acknowledge({ number }: OutputTaker): void {
    const arrived = this.#ranges.filter(
      (range) => range.isNamed && range.mayHaveArrived && !range.isDiscarded && range.number !== number,
    )
    for (const range of arrived) this.#discard(range)
    if (arrived.length > 0) this.#changed()
  }

  trim(): void {
    if (this.#end > DATA_START || this.isTrimmed) return
    this.#streams.truncate(this.fd, DATA_START)
    this.isTrimmed = true
  }

  /** A later `settle` has no effect. */
  seal(): void {
    this.#isSealed = true
  }

  close(): void {
    this.seal()
    // Read the ranges that are out, because their answers may not have been sent yet.
    for (const range of this.#ranges) if (!range.isDiscarded) range.read()
    this.#streams.close(this.fd)
  }

  bytesOf({ start, length }: Range): Uint8Array {
    return this.#streams.readAt(this.fd, start, length)
  }

  settle(range: Range, isDelivered: boolean): void {
    if (this.#isSealed || range.isDiscarded || !this.#ranges.includes(range)) return
    range.answers -= 1
    range.mayHaveArrived ||= isDelivered
    // The kernel may have taken an answer that its reader never gets.
    if (range.isNamed && (range.mayHaveArrived || range.answers > 0)) return
    if (isDelivered) this.#discard(range)
    else this.#unread(range)
    this.#changed()
  }

  #discard(range: Range): void {
    range.isDiscarded = true
    if (range.start === this.#discarded) this.#advance()
    else this.#write(range, DISCARDED)
  }

  #unread(range: Range): void {
    if (range.number !== 0n) this.#journal.write(range.record, {})
    this.#ranges.splice(this.#ranges.indexOf(range), 1)
    this.#journal.release(range.record)
  }

  /** Discards the ranges at the front; their records lose their meaning and are not rewritten. */
  #advance(): void {
    for (
      let [first] = this.#ranges;
      first?.isDiscarded && first.start === this.#discarded;
      [first] = this.#ranges
    ) {
      this.#discarded += first.length
      this.#ranges.shift()
      this.#journal.release(first.record)
    }
    this.#writeFirst()
    if (this.#discarded === this.#end) this.#restart()
    else if (this.#discarded - this.#punched >= PUNCHED_BYTES) this.#punch()
  }

  #punch(): void {
    this.#streams.punchHole(this.fd, this.#punched, this.#discarded - this.#punched)
    this.#punched = this.#discarded
  }

  /** Empties the file; its memory is used again. */
  #restart(): void {
    this.#streams.setPosition(this.fd, DATA_START)
    this.#epoch = (this.#epoch + 1) >>> 0
    this.#discarded = DATA_START
    this.#end = DATA_START
    this.#punched = DATA_START
    this.#writeFirst()
  }

  #insert(range: Range): void {
    const later = this.#ranges.findIndex(({ start }) => start > range.start)
    this.#ranges.splice(later === -1 ? this.#ranges.length : later, 0, range)
  }

  #write({ start, length, record, number }: Range, state: number): void {
    this.#journal.write(record, { number, start, length, state, epoch: this.#epoch })
  }

  #writeFirst(): void {
    this.#journal.write(0, { start: this.#discarded, epoch: this.#epoch })
  }
}
