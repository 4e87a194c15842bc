import type { Os } from '../../../os/os.ts'
import { type Fd, TOTALS_BYTES } from '../../../os/streams/streams.ts'
import type { StreamName } from '../port-connections.ts'

/** The name of the file in vminit's store. */
const STORED = 'stream-records'

const RECORD_BYTES = 128
/** The relay counts here, beside what is written at once. */
const TOTALS_AT = 64
/** More than vminit's store has room for. */
const RECORDS = 8192
const VERSION = 1

const STREAMS: readonly StreamName[] = ['stdin', 'stdout', 'stderr']

/**
 * `attached`: it has its connection. `losing`: the connection that is stored is over. `detached`: a connection that is
 * stored is the next one, and may not be made yet.
 */
const STATES = ['free', 'attached', 'losing', 'detached'] as const

/** A stream over a port, as the next agent must know it. */
export interface StreamRecord {
  /** Of its process. */
  readonly key: string
  readonly stream: StreamName
  readonly port: number
  readonly state: Exclude<(typeof STATES)[number], 'free'>
  /** Whether a caller has named `port`, from which the host has not dialled yet. */
  readonly isNamed: boolean
  /** Until when a detached stream waits for a connection, and until when it does not try; CLOCK_BOOTTIME. */
  readonly endNs: bigint
  readonly heldNs: bigint
}

interface StreamTotals {
  readonly delivered: bigint
  readonly received: bigint
  /** What the host has of an output. */
  readonly acknowledged: bigint
}

/**
 * The records of all streams over ports, in one file in memory that survives the agent. The relay writes the totals of a
 * record. One call writes the rest, so a kill leaves it before or after a change.
 */
export class StreamRecords {
  readonly #os: Pick<Os, 'streams' | 'descriptors'>
  #fd: Fd | undefined
  readonly #places = new Map<string, number>()
  readonly #free: number[] = []
  #used = 1

  constructor(os: Pick<Os, 'streams' | 'descriptors'>) {
    this.#os = os
  }

  /** Reads the records of the previous agent. Throws when they have another version. */
  restore(): void {
    const { descriptors, streams } = this.#os
    this.#fd = descriptors.take(STORED)
    if (this.#fd === undefined) return
    const all = streams.readAt(this.#fd, 0, RECORDS * RECORD_BYTES)
    const version = all.readUInt32LE(0)
    if (version !== VERSION) throw new Error(`${STORED}: version ${version}, want ${VERSION}`)
    for (let place = 1; place < RECORDS; place++) {
      const record = decode(all.subarray(place * RECORD_BYTES, (place + 1) * RECORD_BYTES))
      if (record === undefined) continue
      this.#free.push(...range(this.#used, place))
      this.#used = place + 1
      this.#places.set(nameOf(record), place)
    }
  }

  /** Returns where the relay counts; undefined when there is no room, or no file. */
  add(record: StreamRecord): { readonly fd: Fd; readonly offset: number } | undefined {
    const place = this.#places.get(nameOf(record)) ?? this.#newPlace()
    if (place === undefined) return undefined
    const fd = this.#file()
    if (!this.#places.has(nameOf(record))) {
      this.#os.streams.writeAt(fd, place * RECORD_BYTES + TOTALS_AT, Buffer.alloc(TOTALS_BYTES))
    }
    this.#places.set(nameOf(record), place)
    this.save(record)
    return { fd, offset: place * RECORD_BYTES + TOTALS_AT }
  }

  find(key: string, stream: StreamName): StreamRecord | undefined {
    const place = this.#places.get(nameOf({ key, stream }))
    if (place === undefined) return undefined
    return decode(this.#os.streams.readAt(this.#file(), place * RECORD_BYTES, RECORD_BYTES))
  }

  save(record: StreamRecord): void {
    const place = this.#places.get(nameOf(record))
    if (place !== undefined) this.#os.streams.writeAt(this.#file(), place * RECORD_BYTES, encode(record))
  }

  /** Bytes delivered to the process or the host, and received from them. Exact while the relay stands still. */
  totals(record: Pick<StreamRecord, 'key' | 'stream'>): StreamTotals {
    const place = this.#places.get(nameOf(record))
    if (place === undefined) return { delivered: 0n, received: 0n, acknowledged: 0n }
    const bytes = this.#os.streams.readAt(this.#file(), place * RECORD_BYTES + TOTALS_AT, TOTALS_BYTES)
    return {
      delivered: bytes.readBigUInt64LE(0),
      received: bytes.readBigUInt64LE(8),
      acknowledged: bytes.readBigUInt64LE(16),
    }
  }

  /** What has arrived at the reader of an output that resumes, or at the guest, which has what it has read. */
  arrived(record: Pick<StreamRecord, 'key' | 'stream'>): bigint {
    const { received, acknowledged } = this.totals(record)
    return record.stream === 'stdin' ? received : acknowledged
  }

  /** Sets what was delivered of an output that resumes, whose relay has no connection. */
  sendFrom(record: Pick<StreamRecord, 'key' | 'stream'>, total: bigint): void {
    const place = this.#places.get(nameOf(record))
    const bytes = Buffer.alloc(8)
    bytes.writeBigUInt64LE(total)
    if (place !== undefined) this.#os.streams.writeAt(this.#file(), place * RECORD_BYTES + TOTALS_AT, bytes)
  }

  free(record: Pick<StreamRecord, 'key' | 'stream'>): void {
    const place = this.#places.get(nameOf(record))
    if (place === undefined) return
    this.#os.streams.writeAt(this.#file(), place * RECORD_BYTES, Buffer.alloc(TOTALS_AT))
    this.#places.delete(nameOf(record))
    this.#free.push(place)
  }

  /** Frees the records of streams that nothing has restored. */
  freeAllBut(isKept: (record: Pick<StreamRecord, 'key' | 'stream'>) => boolean): void {
    for (const name of [...this.#places.keys()]) {
      const [key = '', stream] = name.split(' ')
      const record = { key, stream: STREAMS.find((one) => one === stream) ?? 'stdin' }
      if (!isKept(record)) this.free(record)
    }
  }

  #newPlace(): number | undefined {
    return this.#free.pop() ?? (this.#used < RECORDS ? this.#used++ : undefined)
  }

  #file(): Fd {
    if (this.#fd !== undefined) return this.#fd
    const { streams, descriptors } = this.#os
    this.#fd = streams.memoryFile(STORED)
    streams.truncate(this.#fd, RECORDS * RECORD_BYTES)
    const first = Buffer.alloc(4)
    first.writeUInt32LE(VERSION)
    streams.writeAt(this.#fd, 0, first)
    // Without vminit no agent follows, and nothing needs to be kept.
    descriptors.store(STORED, this.#fd).catch(() => {})
    return this.#fd
  }
}

function nameOf({ key, stream }: Pick<StreamRecord, 'key' | 'stream'>): string {
  return `${key} ${stream}`
}

function range(from: number, to: number): readonly number[] {
  return Array.from({ length: to - from }, (_, index) => from + index)
}

/** A key has at most 16 characters. */
const KEY_BYTES = 16

function encode({ key, stream, port, state, isNamed, endNs, heldNs }: StreamRecord): Buffer {
  const bytes = Buffer.alloc(TOTALS_AT)
  bytes.writeUInt8(STATES.indexOf(state), 0)
  bytes.writeUInt8(STREAMS.indexOf(stream), 1)
  bytes.writeUInt8(isNamed ? 1 : 0, 2)
  bytes.writeUInt32LE(port, 4)
  bytes.write(key, 8, KEY_BYTES, 'latin1')
  bytes.writeBigUInt64LE(endNs, 24)
  bytes.writeBigUInt64LE(heldNs, 32)
  return bytes
}

function decode(bytes: Buffer): StreamRecord | undefined {
  const state = STATES[bytes.readUInt8(0)] ?? 'free'
  const stream = STREAMS[bytes.readUInt8(1)]
  if (state === 'free' || stream === undefined) return undefined
  return {
    state,
    stream,
    isNamed: bytes.readUInt8(2) === 1,
    port: bytes.readUInt32LE(4),
    key: bytes.toString('latin1', 8, 8 + KEY_BYTES).replaceAll('\0', ''),
    endNs: bytes.readBigUInt64LE(24),
    heldNs: bytes.readBigUInt64LE(32),
  }
}
