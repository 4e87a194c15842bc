import { constants } from 'node:fs'
import { open } from 'node:fs/promises'
import { AgentError, errnoOf } from '../../../base/errors.ts'

/** The part of a LUKS image before what it encrypts ("LUKS1 On-Disk Format Specification", version 1.2.3). */
interface LuksHeader {
  /** With the key of the image, which each of its secrets opens. */
  readonly bytes: Buffer
  /** Where in the image the disk begins. */
  readonly payloadOffset: number
}

const SECTOR = 512
const MAGIC = 'LUKS\xba\xbe'
/** The only version that QEMU knows. */
const VERSION = 1
const FIXED_BYTES = 592
const [PAYLOAD, KEY_BYTES, SLOTS] = [104, 108, 208]
const [SLOT_BYTES, SLOT_MATERIAL, SLOT_STRIPES] = [48, 40, 44]
/** Eight times that of the longest keys that cryptsetup makes. */
const MAX_BYTES = 16 * 2 ** 20

/** Throws FAILED_PRECONDITION for a file that has none. */
export async function readLuksHeader(path: string): Promise<LuksHeader> {
  const fail = (text: string) => new AgentError('FAILED_PRECONDITION', `${path}: ${text}`)
  // A FIFO would make it wait for a writer.
  await using file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK).catch((error) => {
    throw fail(errnoOf(error) ?? 'not read')
  })
  const { buffer: fixed } = await file.read(Buffer.alloc(FIXED_BYTES), 0, FIXED_BYTES, 0)
  if (fixed.toString('latin1', 0, MAGIC.length) !== MAGIC || fixed.readUInt16BE(MAGIC.length) !== VERSION)
    throw fail('not a LUKS image')
  const payloadOffset = fixed.readUInt32BE(PAYLOAD) * SECTOR
  const keyBytes = fixed.readUInt32BE(KEY_BYTES)
  let end = FIXED_BYTES
  for (let slot = SLOTS; slot < FIXED_BYTES; slot += SLOT_BYTES) {
    const material = fixed.readUInt32BE(slot + SLOT_MATERIAL) * SECTOR
    end = Math.max(end, material + keyBytes * fixed.readUInt32BE(slot + SLOT_STRIPES))
  }
  if (end > Math.min(payloadOffset, MAX_BYTES)) throw fail(`a LUKS header of ${end} bytes`)
  const { buffer: bytes, bytesRead } = await file.read(Buffer.alloc(end), 0, end, 0)
  if (bytesRead === end) return { bytes, payloadOffset }
  throw fail(`${bytesRead} bytes, want its LUKS header of ${end}`)
}
