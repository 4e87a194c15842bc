import { CommandFailure, EXIT } from '../../command.ts'
import { BLOCK_BYTES } from './tar-blocks.ts'

/** A header of POSIX ustar or GNU tar. Texts are bytes, one a character. */
export interface TarHeader {
  /** `0` is a file, `5` a folder. */
  readonly type: string
  readonly name: string
  readonly linkName: string
  /** NaN when the field is malformed. */
  readonly sizeBytes: number
}

/** Offset and length of each field. */
const FIELDS = {
  name: [0, 100],
  size: [124, 12],
  checksum: [148, 8],
  type: [156, 1],
  linkName: [157, 100],
  magic: [257, 8],
  prefix: [345, 155],
} as const

/** Throws {@link CommandFailure} for a block that is no header. */
export function readHeader(block: Buffer): TarHeader {
  if (numberIn(block, 'checksum') !== checksumOf(block))
    throw new CommandFailure(EXIT.failed, 'cp: what tar has written is no archive')
  const prefix = textIn(block, 'magic').startsWith('ustar\0') ? cString(textIn(block, 'prefix')) : ''
  const name = cString(textIn(block, 'name'))
  return {
    // NUL and 7 are old and rare letters for a file.
    type: ['\0', '7'].includes(textIn(block, 'type')) ? '0' : textIn(block, 'type'),
    name: prefix === '' ? name : `${prefix}/${name}`,
    linkName: cString(textIn(block, 'linkName')),
    sizeBytes: numberIn(block, 'size'),
  }
}

/** Writes `block` as a GNU tar header. Names that are too long get entries of their own before it. */
export function writeHeader(block: Buffer, said: TarHeader): Buffer {
  const { linkName, name, sizeBytes, type } = said
  const header = Buffer.from(block)
  header.fill(0, FIELDS.prefix[0])
  put(header, 'name', name)
  put(header, 'linkName', linkName)
  complete(header, type, sizeBytes)
  const long = [longName('K', linkName), longName('L', name)]
  return Buffer.concat([...long, header])
}

function longName(type: 'K' | 'L', name: string): Buffer {
  if (name.length <= FIELDS.name[1]) return Buffer.alloc(0)
  const header = Buffer.alloc(BLOCK_BYTES)
  put(header, 'name', '././@LongLink')
  complete(header, type, name.length + 1)
  const data = Buffer.alloc(paddedTo(name.length + 1))
  data.write(name, 'latin1')
  return Buffer.concat([header, data])
}

export function paddedTo(bytes: number): number {
  return Math.ceil(bytes / BLOCK_BYTES) * BLOCK_BYTES
}

/** The text before the first NUL. */
export function cString(text: string): string {
  const end = text.indexOf('\0')
  return end < 0 ? text : text.slice(0, end)
}

function textIn(block: Buffer, field: keyof typeof FIELDS): string {
  const [begin, length] = FIELDS[field]
  return block.toString('latin1', begin, begin + length)
}

/** Octal digits, or GNU's big-endian number after a byte of 0x80. */
function numberIn(block: Buffer, field: keyof typeof FIELDS): number {
  const [begin, length] = FIELDS[field]
  if (block[begin] === 0x80) return Number(block.readBigUInt64BE(begin + length - 8))
  const digits = cString(textIn(block, field)).trim()
  const number = digits === '' ? 0 : Number.parseInt(digits, 8)
  return /^[0-7]*$/.test(digits) ? number : Number.NaN
}

function put(header: Buffer, field: keyof typeof FIELDS, text: string): void {
  const [begin, length] = FIELDS[field]
  header.fill(0, begin, begin + length)
  header.write(text.slice(0, length), begin, 'latin1')
}

function complete(header: Buffer, type: string, sizeBytes: number): void {
  put(header, 'type', type)
  put(header, 'magic', 'ustar  \0')
  putSize(header, sizeBytes)
  put(header, 'checksum', `${checksumOf(header).toString(8).padStart(6, '0')}\0 `)
}

function putSize(header: Buffer, bytes: number): void {
  const [begin, length] = FIELDS.size
  put(header, 'size', `${bytes.toString(8).padStart(length - 1, '0')}`)
  if (bytes < 8 ** (length - 1)) return
  header.fill(0, begin, begin + length)
  header[begin] = 0x80
  header.writeBigUInt64BE(BigInt(bytes), begin + length - 8)
}

/** The checksum's own bytes count as spaces. */
function checksumOf(block: Buffer): number {
  const [begin, length] = FIELDS.checksum
  return block.reduce((sum, byte, at) => sum + (at >= begin && at < begin + length ? 0x20 : byte), 0)
}
