import type { Fd, Streams } from '../../os/streams/streams.ts'

/**
 * Where the bytes of a file in memory begin; before them is the page of its journal. No page of memory, however large,
 * has both: truncating the bytes would zero the part of it that a pipe still refers to.
 */
export const DATA_START = 2 ** 30

const RECORD_BYTES = 32
const RECORDS = 128

/** What the journal says of a piece of the file. */
export interface JournalRecord {
  /** The number of the request that the piece belongs to; 0 for none. */
  readonly number: bigint
  /** The offset in the file. */
  readonly start: number
  readonly length: number
  /** The meaning is its file's; 0 is a free record. */
  readonly state: number
  /** Records of another epoch than the first record's are free. */
  readonly epoch: number
}

/**
 * The first page of a file in memory: 128 records of 32 bytes, the first of the file itself, each of the others of one
 * request. A record is written by one call, and whole or not at all: a kill leaves what was before a step, or after it.
 */
export class JournalPage {
  readonly #streams: Pick<Streams, 'readAt' | 'writeAt'>
  readonly #fd: Fd
  readonly #free: number[] = Array.from({ length: RECORDS - 1 }, (_, index) => RECORDS - 1 - index)

  constructor(streams: Pick<Streams, 'readAt' | 'writeAt'>, fd: Fd) {
    this.#streams = streams
    this.#fd = fd
  }

  /** Whether a request can be recorded. At most 127 have a record at a time. */
  get hasRoom(): boolean {
    return this.#free.length > 0
  }

  /** The record of the file itself. */
  readFirst(): JournalRecord {
    return decode(this.#read(0))
  }

  /** The records of requests that `isUsed` by their place, which are reserved by this. */
  readUsed(isUsed: (record: JournalRecord) => boolean): ReadonlyMap<number, JournalRecord> {
    const used = new Map<number, JournalRecord>()
    for (let place = 1; place < RECORDS; place++) {
      const record = decode(this.#read(place))
      if (record.state === 0 || !isUsed(record)) continue
      used.set(place, record)
      this.#free.splice(this.#free.indexOf(place), 1)
    }
    return used
  }

  /** A place for a record. To be called when the journal {@link hasRoom}. */
  reserve(): number {
    const place = this.#free.pop()
    if (place === undefined) throw new Error('the journal has no room')
    return place
  }

  /** Makes a place free whose record is free, or of another epoch. */
  release(place: number): void {
    this.#free.push(place)
  }

  write(place: number, record: Partial<JournalRecord>): void {
    this.#streams.writeAt(this.#fd, place * RECORD_BYTES, encode(record))
  }

  #read(place: number): Buffer {
    const bytes = this.#streams.readAt(this.#fd, place * RECORD_BYTES, RECORD_BYTES)
    // A new file is empty.
    return bytes.length === RECORD_BYTES ? bytes : Buffer.alloc(RECORD_BYTES)
  }
}

function encode({
  number = 0n,
  start = 0,
  length = 0,
  state = 0,
  epoch = 0,
}: Partial<JournalRecord>): Buffer {
  const bytes = Buffer.alloc(RECORD_BYTES)
  bytes.writeBigUInt64LE(number, 0)
  bytes.writeBigUInt64LE(BigInt(start), 8)
  bytes.writeUInt32LE(length, 16)
  bytes.writeUInt32LE(state, 20)
  bytes.writeUInt32LE(epoch, 24)
  return bytes
}

function decode(bytes: Buffer): JournalRecord {
  return {
    number: bytes.readBigUInt64LE(0),
    start: Number(bytes.readBigUInt64LE(8)),
    length: bytes.readUInt32LE(16),
    state: bytes.readUInt32LE(20),
    epoch: bytes.readUInt32LE(24),
  }
}
