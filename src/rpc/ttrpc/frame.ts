import { LIMITS } from '../limits.ts'

/** Bytes of a frame header: length (u32), stream id (u32), type (u8), flags (u8); big endian. */
export const FRAME_HEADER_BYTES = 10

/** The largest payload of a frame, both ways. */
export const MAX_FRAME_PAYLOAD_BYTES = LIMITS.messageBytes

/** Message types as on the wire. */
export const FrameType = { request: 1, response: 2, data: 3 } as const

/** Frame flags as on the wire; only data frames carry them here. */
export const FrameFlag = { remoteClosed: 1, remoteOpen: 2, noData: 4 } as const

export interface FrameHeader {
  readonly payloadBytes: number
  readonly streamId: number
  /** One of {@link FrameType}, or any other number that the peer sent. */
  readonly type: number
  readonly flags: number
}

/** A buffer is at most so many times what has arrived: enough for the largest frame after its first read. */
const AHEAD = 16

/** Called by a {@link FrameReader} during `push`, in the order of the wire. */
export interface FrameEvents {
  /** A whole frame. `payload` may be a view of the bytes pushed. */
  onFrame(header: FrameHeader, payload: Uint8Array): void
  /** The end of a frame larger than {@link MAX_FRAME_PAYLOAD_BYTES}, whose payload was dropped as it came. */
  onOversizedFrame(header: FrameHeader): void
}

/**
 * A buffer for a frame of `payloadBytes` with its header filled in; the payload belongs after it, but for its last
 * `apartBytes`, which are sent from elsewhere.
 */
export function allocateFrame(header: FrameHeader, apartBytes = 0): Buffer {
  const frame = Buffer.allocUnsafe(FRAME_HEADER_BYTES + header.payloadBytes - apartBytes)
  frame.writeUInt32BE(header.payloadBytes, 0)
  frame.writeUInt32BE(header.streamId, 4)
  frame[8] = header.type
  frame[9] = header.flags
  return frame
}

/** Cuts a byte stream into frames. Holds at most one incomplete frame, and of that only the bytes that have arrived. */
export class FrameReader {
  readonly #events: FrameEvents
  readonly #headerBytes = Buffer.allocUnsafe(FRAME_HEADER_BYTES)
  #headerLength = 0
  #header: FrameHeader | undefined
  #payload = NOTHING
  #payloadLength = 0

  constructor(events: FrameEvents) {
    this.#events = events
  }

  push(chunk: Buffer): void {
    for (let offset = 0; offset < chunk.length; ) {
      offset = this.#header === undefined ? this.#readHeader(chunk, offset) : this.#readPayload(chunk, offset)
    }
  }

  #readHeader(chunk: Buffer, offset: number): number {
    if (this.#headerLength === 0 && chunk.length - offset >= FRAME_HEADER_BYTES) {
      this.#beginFrame(parseFrameHeader(chunk, offset))
      return offset + FRAME_HEADER_BYTES
    }
    const copied = chunk.copy(this.#headerBytes, this.#headerLength, offset)
    this.#headerLength += copied
    if (this.#headerLength === FRAME_HEADER_BYTES) {
      this.#headerLength = 0
      this.#beginFrame(parseFrameHeader(this.#headerBytes, 0))
    }
    return offset + copied
  }

  #beginFrame(header: FrameHeader): void {
    this.#payloadLength = 0
    if (header.payloadBytes === 0) this.#events.onFrame(header, new Uint8Array(0))
    else this.#header = header
  }

  #readPayload(chunk: Buffer, offset: number): number {
    const header = this.#header
    if (header === undefined) return offset
    const taken = Math.min(chunk.length - offset, header.payloadBytes - this.#payloadLength)
    const part = chunk.subarray(offset, offset + taken)
    const isOversized = header.payloadBytes > MAX_FRAME_PAYLOAD_BYTES
    const isWhole = taken === header.payloadBytes
    if (!isOversized && !isWhole) this.#keep(part, header)
    this.#payloadLength += taken
    if (this.#payloadLength === header.payloadBytes) {
      const payload = isWhole ? part : this.#payload
      this.#header = undefined
      this.#payload = NOTHING
      if (isOversized) this.#events.onOversizedFrame(header)
      else this.#events.onFrame(header, payload)
    }
    return offset + taken
  }

  /** Allocates by what the peer has sent, not by the length that it claims. */
  #keep(part: Buffer, header: FrameHeader): void {
    const needed = this.#payloadLength + part.length
    if (needed > this.#payload.length) {
      const grown = Buffer.allocUnsafeSlow(Math.min(header.payloadBytes, AHEAD * needed))
      this.#payload.copy(grown, 0, 0, this.#payloadLength)
      this.#payload = grown
    }
    part.copy(this.#payload, this.#payloadLength)
  }
}

const NOTHING = Buffer.alloc(0)

/** Parses the header that begins at `offset`. */
export function parseFrameHeader(bytes: Buffer, offset: number): FrameHeader {
  return {
    payloadBytes: bytes.readUInt32BE(offset),
    streamId: bytes.readUInt32BE(offset + 4),
    type: bytes.readUInt8(offset + 8),
    flags: bytes.readUInt8(offset + 9),
  }
}
