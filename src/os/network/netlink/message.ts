/** A netlink message (linux/netlink.h), little endian: header, fixed part, attributes, all aligned to 4 bytes. */
export interface Message {
  readonly type: number
  /** NLM_F_. */
  readonly flags: number
  readonly sequence: number
  readonly payload: Buffer
}

/** A typed value: bytes, a number of 32 bits, or nested attributes. */
export interface Attribute {
  readonly type: number
  readonly value: Uint8Array | number | readonly Attribute[]
}

const HEADER_BYTES = 16
const ATTRIBUTE_HEADER_BYTES = 4
/** The two highest bits of an attribute's type are flags (NLA_F_NESTED, NLA_F_NET_BYTEORDER). */
const NESTED = 0x8000
const TYPE_MASK = 0x3fff

/** Writes to the beginning of `target` and returns the length. Throws RangeError when `target` is too small. */
export function writeMessage(
  target: Buffer,
  message: {
    readonly type: number
    readonly flags: number
    readonly sequence: number
    readonly fixed: Uint8Array
    readonly attributes: readonly Attribute[]
  },
): number {
  const fixedEnd = HEADER_BYTES + aligned(message.fixed.length)
  const length = fixedEnd + sizeOf(message.attributes)
  target.fill(0, 0, length)
  target.writeUInt32LE(length, 0)
  target.writeUInt16LE(message.type, 4)
  target.writeUInt16LE(message.flags, 6)
  target.writeUInt32LE(message.sequence, 8)
  target.set(message.fixed, HEADER_BYTES)
  writeAttributes(target, fixedEnd, message.attributes)
  return length
}

/** Throws RangeError when the datagram is cut off. */
export function decodeMessages(datagram: Buffer): readonly Message[] {
  const messages: Message[] = []
  for (let offset = 0; offset < datagram.length; ) {
    const length = datagram.readUInt32LE(offset)
    if (length < HEADER_BYTES || offset + length > datagram.length)
      throw new RangeError(`netlink message of ${length} bytes at ${offset} of ${datagram.length}`)
    messages.push({
      type: datagram.readUInt16LE(offset + 4),
      flags: datagram.readUInt16LE(offset + 6),
      sequence: datagram.readUInt32LE(offset + 8),
      payload: datagram.subarray(offset + HEADER_BYTES, offset + length),
    })
    offset += aligned(length)
  }
  return messages
}

/** The attributes by type. The last one of a type counts. */
export function decodeAttributes(bytes: Buffer): ReadonlyMap<number, Buffer> {
  const attributes = new Map<number, Buffer>()
  for (let offset = 0; offset + ATTRIBUTE_HEADER_BYTES <= bytes.length; ) {
    const length = bytes.readUInt16LE(offset)
    if (length < ATTRIBUTE_HEADER_BYTES || offset + length > bytes.length) break
    const type = bytes.readUInt16LE(offset + 2) & TYPE_MASK
    attributes.set(type, bytes.subarray(offset + ATTRIBUTE_HEADER_BYTES, offset + length))
    offset += aligned(length)
  }
  return attributes
}

/** Ends with a NUL. */
export function text(value: string): Buffer {
  return Buffer.from(`${value}\0`)
}

/** The text before the first NUL. */
export function textOf(bytes: Buffer): string {
  const end = bytes.indexOf(0)
  return bytes.toString('utf8', 0, end === -1 ? bytes.length : end)
}

function sizeOf(attributes: readonly Attribute[]): number {
  let bytes = 0
  for (const attribute of attributes) bytes += aligned(lengthOf(attribute))
  return bytes
}

/** With the header, without padding. */
function lengthOf({ value }: Attribute): number {
  if (typeof value === 'number') return ATTRIBUTE_HEADER_BYTES + 4
  return ATTRIBUTE_HEADER_BYTES + (value instanceof Uint8Array ? value.length : sizeOf(value))
}

function writeAttributes(target: Buffer, start: number, attributes: readonly Attribute[]): void {
  let offset = start
  for (const attribute of attributes) {
    const { type, value } = attribute
    const length = lengthOf(attribute)
    const content = offset + ATTRIBUTE_HEADER_BYTES
    target.writeUInt16LE(length, offset)
    target.writeUInt16LE(type, offset + 2)
    if (typeof value === 'number') target.writeUInt32LE(value >>> 0, content)
    else if (value instanceof Uint8Array) target.set(value, content)
    else {
      target.writeUInt16LE(type | NESTED, offset + 2)
      writeAttributes(target, content, value)
    }
    offset += aligned(length)
  }
}

function aligned(length: number): number {
  return (length + 3) & ~3
}
