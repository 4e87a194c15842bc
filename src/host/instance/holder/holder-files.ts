import { constants } from 'node:fs'
import { mkdir, open, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { AgentError, errnoOf } from '../../../base/errors.ts'
import type { HeldChild } from './holder.ts'
import { parseChild } from './holder-lines.ts'

/** What a holder that is dead has left in the instance's folder. Native/holder/streams/ring-file.h describes the rings. */

/** The children as the holder last knew them. Those without an exit ended with the holder. */
export async function readExits(folder: string): Promise<readonly HeldChild[]> {
  const text = await readFile(join(folder, 'exits'), 'utf8').catch((error) => {
    if (errnoOf(error) === 'ENOENT') return ''
    throw error
  })
  const lines = text.split('\n').filter((line) => line !== '')
  return lines.map((line) => parseChild(line.split(' ')))
}

/** How many bytes are kept of the console, or of a stream. */
export function ringCapacity(number: number): bigint {
  return number === 0 ? CONSOLE_BYTES : STREAM_BYTES
}

/** Writes the file of a ring, in which a holder goes on. */
export async function writeRing(
  folder: string,
  number: number,
  {
    bytes,
    first,
    isClosed,
  }: { readonly bytes: Uint8Array; readonly first: bigint; readonly isClosed: boolean },
): Promise<void> {
  const capacity = ringCapacity(number)
  if (BigInt(bytes.length) > capacity)
    throw new AgentError(
      'INVALID_ARGUMENT',
      `ring ${number}: ${bytes.length} bytes, want at most ${capacity}`,
    )
  const span = capacity + CHUNK_BYTES
  const header = Buffer.alloc(HEADER_BYTES)
  header.write(MAGIC, 'latin1')
  header.writeUInt32LE(VERSION, 8)
  header.writeUInt32LE(isClosed ? 1 : 0, 12)
  const end = first + BigInt(bytes.length)
  for (const [index, value] of [capacity, span, first, end].entries())
    header.writeBigUInt64LE(value, 16 + index * 8)
  if (number !== 0) await mkdir(join(folder, 'streams'), { recursive: true, mode: 0o700 })
  const path = join(folder, number === 0 ? 'console.ring' : `streams/${number}.ring`)
  await using file = await open(path, constants.O_RDWR | constants.O_CREAT | constants.O_NOFOLLOW, 0o600)
  const place = Number(first % span)
  const piece = Math.min(bytes.length, Number(span) - place)
  await file.write(bytes, 0, piece, DATA_OFFSET + place)
  await file.write(bytes, piece, bytes.length - piece, DATA_OFFSET)
  await file.write(header, 0, HEADER_BYTES, 0)
}

export interface RingContent {
  readonly first: bigint
  readonly end: bigint
  /** The bytes from `first` to `end`. */
  readonly bytes: Buffer
}

const MAGIC = 'HOLDRING'
const VERSION = 1
const HEADER_BYTES = 48
const DATA_OFFSET = 4096
/** Of a ring; native/holder/limits.h has less. */
const MOST_BYTES = 16n << 20n
/** As there. */
const CONSOLE_BYTES = 1n << 20n
const STREAM_BYTES = 1n << 18n
const CHUNK_BYTES = 1n << 16n

/** The whole content of ring `number`. Rejects with NOT_FOUND when there is none, and with FAILED_PRECONDITION when it is damaged. */
export async function readRing(folder: string, number: number): Promise<RingContent> {
  const path = join(folder, number === 0 ? 'console.ring' : `streams/${number}.ring`)
  const file = await open(path).catch((error) => {
    throw errnoOf(error) === 'ENOENT' ? new AgentError('NOT_FOUND', `${path}: not found`) : error
  })
  try {
    const header = Buffer.alloc(HEADER_BYTES)
    await file.read(header, 0, HEADER_BYTES, 0)
    const [capacity, span, base, end] = [16, 24, 32, 40].map((offset) => header.readBigUInt64LE(offset))
    const isRing = header.toString('latin1', 0, 8) === MAGIC && header.readUInt32LE(8) === VERSION
    if (!isRing || capacity === undefined || span === undefined || base === undefined || end === undefined) {
      throw new AgentError('FAILED_PRECONDITION', `${path}: not a ring of version ${VERSION}`)
    }
    if (capacity > span || span > MOST_BYTES || base > end) {
      throw new AgentError('FAILED_PRECONDITION', `${path}: damaged`)
    }
    const kept = end > capacity ? end - capacity : 0n
    const first = kept > base ? kept : base
    const bytes = Buffer.alloc(Number(end - first))
    const place = Number(first % span)
    const piece = Math.min(bytes.length, Number(span) - place)
    await file.read(bytes, 0, piece, DATA_OFFSET + place)
    await file.read(bytes, piece, bytes.length - piece, DATA_OFFSET)
    return { first, end, bytes }
  } finally {
    await file.close()
  }
}
