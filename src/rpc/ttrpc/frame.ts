import { LIMITS } from '../limits.ts'

/** Bytes of a frame header: length (u32), stream id (u32), type (u8), flags (u8); big endian. */
export const FRAME_HEADER_BYTES = 10

export const MAX_FRAME_PAYLOAD_BYTES = LIMITS.messageBytes

export const FrameType = { request: 1, response: 2, data: 3 } as const

/** Only data frames carry flags here. */
export const FrameFlag = { remoteClosed: 1, remoteOpen: 2, noData: 4 } as const

export interface FrameHeader {
  readonly payloadBytes: number
  readonly streamId: number
  /** A {@link FrameType} or any other number. */
  readonly type: number
  readonly flags: number
}

/** The limit of a frame's buffer, in multiples of the bytes received. */
const AHEAD = 16

/** Called by a {@link FrameReader} during `push`, in the order of the wire. */
export interface FrameEvents {
  /** `payload` may be a view of the pushed bytes. */
  onFrame(header: FrameHeader, payload: Uint8Array): void
  /** Called at the end of a frame above {@link MAX_FRAME_PAYLOAD_BYTES}, whose payload was dropped. */
  onOversizedFrame(header: FrameHeader): void
}

/** A frame with its header and room for the payload, less the last `apartBytes`, which are sent separately. */
export function allocateFrame(header: FrameHeader, apartBytes = 0): Buffer {
  const frame = Buffer.allocUnsafe(FRAME_HEADER_BYTES + header.payloadBytes - apartBytes)
  frame.writeUInt32BE(header.payloadBytes, 0)
  frame.writeUInt32BE(header.streamId, 4)
  frame[8] = header.type
  frame[9] = header.flags
  return frame
}

/** Splits a byte stream into frames. Buffers at most one incomplete frame. */
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

export function parseFrameHeader(bytes: Buffer, offset: number): FrameHeader {
  return {
    payloadBytes: bytes.readUInt32BE(offset),
    streamId: bytes.readUInt32BE(offset + 4),
    type: bytes.readUInt8(offset + 8),
    flags: bytes.readUInt8(offset + 9),
  }
}
