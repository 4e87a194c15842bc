/** Bytes of the envelope of a frame on a data socket of the broker (docs/broker.md). */
export const ENVELOPE_BYTES = 32

/** The kinds of envelopes; the broker's own list is in native/broker/protocol.h. */
export const EnvelopeKind = {
  request: 1,
  oversized: 2,
  written: 3,
  dropped: 4,
  lost: 5,
  answer: 16,
  nothing: 17,
  confirm: 18,
} as const

/** Flag of a request: the previous agent had it. */
export const SENT_BEFORE = 1

/** Flag of an answer: the broker reports its delivery, and remembers it until the report is confirmed. */
export const KEEP = 1

/** Flag of a request: its frame is in a file, which the control socket has brought. */
export const FRAME_IN_FILE = 4

/** Flag of an answer: its end is in a memory file, whose descriptor comes with the envelope. */
export const IN_FILE = 2

/** Flag of an oversized frame: the broker dropped it because of its limits, not because of its size. */
export const NO_ROOM = 2

/** Little endian: `u32 kind, u32 flags, u64 number, u64 age_ns, u32 frame_bytes, u32 file_bytes`. */
export interface Envelope {
  readonly kind: number
  readonly flags: number
  readonly number: bigint
  /** The age of a request; for an answer with {@link IN_FILE}, the offset in the file. */
  readonly ageNs: number
  /** The length of the frame, with its header. It follows, unless it is in a file. */
  readonly frameBytes: number
  /** The bytes at the frame's end that are in the file; 0 by default. */
  readonly fileBytes?: number
}

export function encodeEnvelope(envelope: Envelope): Buffer {
  const bytes = Buffer.allocUnsafe(ENVELOPE_BYTES)
  writeEnvelope(bytes, 0, envelope)
  return bytes
}

/** Returns the offset after the envelope. */
export function writeEnvelope(bytes: Buffer, offset: number, envelope: Envelope): number {
  const { kind, flags, number, ageNs, frameBytes, fileBytes = 0 } = envelope
  bytes.writeUInt32LE(kind, offset)
  bytes.writeUInt32LE(flags, offset + 4)
  // One access to the bigint: the methods of Buffer make five further ones of it.
  wide.setBigUint64(0, number, true)
  bytes.writeUInt32LE(wide.getUint32(0, true), offset + 8)
  bytes.writeUInt32LE(wide.getUint32(4, true), offset + 12)
  bytes.writeUInt32LE(ageNs % 2 ** 32, offset + 16)
  bytes.writeUInt32LE(Math.floor(ageNs / 2 ** 32), offset + 20)
  bytes.writeUInt32LE(frameBytes, offset + 24)
  bytes.writeUInt32LE(fileBytes, offset + 28)
  return offset + ENVELOPE_BYTES
}

const wide = new DataView(new ArrayBuffer(8))

export function decodeEnvelope(bytes: Buffer, offset: number): Envelope {
  wide.setUint32(0, bytes.readUInt32LE(offset + 8), true)
  wide.setUint32(4, bytes.readUInt32LE(offset + 12), true)
  return {
    kind: bytes.readUInt32LE(offset),
    flags: bytes.readUInt32LE(offset + 4),
    number: wide.getBigUint64(0, true),
    ageNs: bytes.readUInt32LE(offset + 16) + bytes.readUInt32LE(offset + 20) * 2 ** 32,
    frameBytes: bytes.readUInt32LE(offset + 24),
  }
}

export function bareEnvelope(kind: number, number: bigint): Envelope {
  return { kind, flags: 0, number, ageNs: 0, frameBytes: 0 }
}
