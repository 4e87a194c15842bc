import { crc32 } from '../../base/crc32.ts'
import type { Fd, Streams } from '../../os/streams/streams.ts'

/** The offset of the data. No huge page may span journal and data: truncation would zero what a pipe refers to. */
export const DATA_START = 2 ** 30

const RECORD_BYTES = 32
const RECORDS = 128
const PAGE_BYTES = RECORD_BYTES * RECORDS

/** The version of the page, which is the `state` of the first record. */
const FORMAT_VERSION = 1

const HOLE = Buffer.alloc(RECORD_BYTES)

/** The offset of a record's checksum: the CRC-32 of the bytes before it, seeded with the record's place. */
const CHECKSUM_AT = 28

export interface JournalRecord {
  /** The number of the request that the range belongs to; 0 for none. */
  readonly number: bigint
  readonly start: number
  readonly length: number
  /** 0 is a free record; each kind of file defines the other states. */
  readonly state: number
  /** Records of another epoch than the first record's are free. */
  readonly epoch: number
}

/**
 * The first page of a file in memory: 128 records of 32 bytes, one of the file itself and one for each request. One
 * call writes a whole record, so a kill leaves the state before or after it. The data has no checksum, because the
 * kernel moves it there and no agent reads it on the way.
 */
export class JournalPage {
  readonly #streams: Pick<Streams, 'readAt' | 'writeAt'>
  readonly #fd: Fd
  readonly #free: number[] = Array.from({ length: RECORDS - 1 }, (_, index) => RECORDS - 1 - index)

  constructor(streams: Pick<Streams, 'readAt' | 'writeAt'>, fd: Fd) {
    this.#streams = streams
    this.#fd = fd
  }

  static newFile(streams: Pick<Streams, 'memoryFile' | 'truncate' | 'writeAt'>, name: string): Fd {
    const fd = streams.memoryFile(name)
    streams.truncate(fd, DATA_START)
    streams.writeAt(fd, 0, encode(0, {}))
    return fd
  }

  /** At most 127 requests have a record at a time. */
  get hasRoom(): boolean {
    return this.#free.length > 0
  }

  /** The record of the file itself. */
  readFirst(): JournalRecord {
    return decode(this.#read(0))
  }

  /** Returns the records that `isUsed` accepts, by place, and reserves their places. */
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

  /** Call it only when the journal {@link hasRoom}. */
  reserve(): number {
    const place = this.#free.pop()
    if (place === undefined) throw new Error('the journal has no room')
    return place
  }

  /** The record at this place must be free or of another epoch. */
  release(place: number): void {
    this.#free.push(place)
  }

  write(place: number, record: Partial<JournalRecord>): void {
    this.#streams.writeAt(this.#fd, place * RECORD_BYTES, encode(place, record))
  }

  #read(place: number): Buffer {
    return this.#streams.readAt(this.#fd, place * RECORD_BYTES, RECORD_BYTES)
  }
}

/** Throws an error that names the damage to a journal of the previous agent. */
export function checkJournal(streams: Pick<Streams, 'readAt'>, fd: Fd): void {
  const page = streams.readAt(fd, 0, PAGE_BYTES)
  if (page.length < PAGE_BYTES)
    throw new Error(`the journal is cut: ${page.length} bytes, want ${PAGE_BYTES}`)
  for (let place = 0; place < RECORDS; place++) {
    const record = page.subarray(place * RECORD_BYTES, (place + 1) * RECORD_BYTES)
    const isHole = place > 0 && record.equals(HOLE)
    if (!isHole && record.readUInt32LE(CHECKSUM_AT) !== checksumOf(place, record))
      throw new Error(`record ${place} of the journal is damaged: its checksum differs`)
  }
  const version = decode(page).state
  if (version !== FORMAT_VERSION)
    throw new Error(`the journal has version ${version}, want ${FORMAT_VERSION}`)
}

function checksumOf(place: number, record: Buffer): number {
  return crc32(record.subarray(0, CHECKSUM_AT), place)
}

function encode(
  place: number,
  {
    number = 0n,
    start = 0,
    length = 0,
    state = place === 0 ? FORMAT_VERSION : 0,
    epoch = 0,
  }: Partial<JournalRecord>,
): Buffer {
  const bytes = Buffer.alloc(RECORD_BYTES)
  bytes.writeBigUInt64LE(number, 0)
  bytes.writeBigUInt64LE(BigInt(start), 8)
  bytes.writeUInt32LE(length, 16)
  bytes.writeUInt32LE(state, 20)
  bytes.writeUInt32LE(epoch, 24)
  bytes.writeUInt32LE(checksumOf(place, bytes), CHECKSUM_AT)
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
