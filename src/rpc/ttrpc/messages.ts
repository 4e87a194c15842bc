import { BinaryReader, BinaryWriter, WireType } from '@bufbuild/protobuf/wire'
import { LONGEST_TIMER_MS } from '../../base/abort.ts'
import { KNOWN_METADATA } from '../method.ts'
import { boundTraceparentBytes, TRACEPARENT } from '../traceparent.ts'
import { allocateFrame, FRAME_HEADER_BYTES, FrameType } from './frame.ts'

// The messages that ttRPC puts around a call. Decoding skips unknown fields, and metadata of other names than KNOWN_METADATA.

export interface TtrpcRequest {
  readonly service: string
  readonly method: string
  readonly payload: Uint8Array
  /** 0 means no limit. */
  readonly timeoutNano: bigint
  /** The metadata of {@link KNOWN_METADATA}, set by the decoder; undefined without any. */
  readonly known?: ReadonlyMap<string, string> | undefined
}

export type RequestMetadata = Readonly<Record<string, string>>

/** Has a payload if `code` is 0, else a message. */
export interface TtrpcResponse {
  readonly code: number
  readonly message: string
  readonly payload: Uint8Array
}

const NO_BYTES = new Uint8Array(0)

/** Throws for bytes that are no protobuf message. */
export function decodeRequest(bytes: Uint8Array): TtrpcRequest {
  const reader = new BinaryReader(bytes)
  let service = ''
  let method = ''
  let payload: Uint8Array = NO_BYTES
  let timeoutNano = 0n
  let known: Map<string, string> | undefined
  let pairs = 0
  while (reader.pos < reader.len) {
    const [field, type] = reader.tag()
    if (field === 1 && type === WireType.LengthDelimited) service = reader.string()
    else if (field === 2 && type === WireType.LengthDelimited) method = reader.string()
    else if (field === 3 && type === WireType.LengthDelimited) payload = reader.bytes()
    else if (field === 4 && type === WireType.Varint) timeoutNano = BigInt(reader.int64())
    else if (field === 5 && type === WireType.LengthDelimited && pairs < MOST_PAIRS) {
      pairs += 1
      const [name, value] = knownPair(reader.bytes()) ?? []
      if (name !== undefined && value !== undefined) known = (known ?? new Map()).set(name, value)
    } else reader.skip(type, field)
  }
  return { service, method, payload, timeoutNano, known }
}

/** Callers send one or two pairs of metadata; further pairs than this are skipped. */
const MOST_PAIRS = 16

/** Longer values than this are cut; no known name has one. */
const MOST_VALUE_BYTES = 1024

/** Returns undefined for a pair of another name, also for an invalid one. */
function knownPair(pair: Uint8Array): readonly [string, string] | undefined {
  const reader = new BinaryReader(pair)
  let name: string | undefined
  let value: Uint8Array = NO_BYTES
  try {
    while (reader.pos < reader.len) {
      const [field, type] = reader.tag()
      if (field === 1 && type === WireType.LengthDelimited) name = knownName(reader.bytes())
      else if (field === 2 && type === WireType.LengthDelimited) value = reader.bytes()
      else reader.skip(type, field)
    }
  } catch {
    return undefined
  }
  if (name === undefined) return undefined
  const text = () => Buffer.from(value.subarray(0, MOST_VALUE_BYTES)).toString()
  return [name, name === TRACEPARENT ? boundTraceparentBytes(value) : text()]
}

function knownName(bytes: Uint8Array): string | undefined {
  return KNOWN_METADATA.find(
    (name) => name.length === bytes.length && Buffer.from(bytes).toString('latin1') === name,
  )
}

export function encodeRequestFrame(
  streamId: number,
  request: TtrpcRequest,
  metadata: RequestMetadata = {},
): Buffer {
  const writer = new BinaryWriter()
  writer.tag(1, WireType.LengthDelimited).string(request.service)
  writer.tag(2, WireType.LengthDelimited).string(request.method)
  if (request.payload.length > 0) writer.tag(3, WireType.LengthDelimited).bytes(request.payload)
  if (request.timeoutNano !== 0n) writer.tag(4, WireType.Varint).int64(request.timeoutNano)
  for (const [key, value] of Object.entries(metadata)) {
    writer.tag(5, WireType.LengthDelimited).fork()
    writer.tag(1, WireType.LengthDelimited).string(key)
    writer.tag(2, WireType.LengthDelimited).string(value)
    writer.join()
  }
  return frameOf(streamId, FrameType.request, writer.finish())
}

/** Throws for bytes that are no protobuf message. A response without a status is successful. */
export function decodeResponse(bytes: Uint8Array): TtrpcResponse {
  const reader = new BinaryReader(bytes)
  let status = { code: 0, message: '' }
  let payload: Uint8Array = NO_BYTES
  while (reader.pos < reader.len) {
    const [field, type] = reader.tag()
    if (field === 1 && type === WireType.LengthDelimited) status = decodeStatus(reader.bytes())
    else if (field === 2 && type === WireType.LengthDelimited) payload = reader.bytes()
    else reader.skip(type, field)
  }
  return { ...status, payload }
}

/** Leaves out the last `bulkBytes`. Sends a status of code 0, as other servers do. */
export function encodeResponseFrame(streamId: number, payload: Uint8Array, bulkBytes = 0): Buffer {
  const encodedBytes = payload.length + bulkBytes
  const headBytes = EMPTY_STATUS.length + (encodedBytes === 0 ? 0 : 1 + varintBytes(encodedBytes))
  const header = { payloadBytes: headBytes + encodedBytes, streamId, type: FrameType.response, flags: 0 }
  const frame = allocateFrame(header, bulkBytes)
  frame.set(EMPTY_STATUS, FRAME_HEADER_BYTES)
  if (encodedBytes === 0) return frame
  frame[FRAME_HEADER_BYTES + EMPTY_STATUS.length] = PAYLOAD_TAG
  writeVarint(frame, FRAME_HEADER_BYTES + EMPTY_STATUS.length + 1, encodedBytes)
  frame.set(payload, FRAME_HEADER_BYTES + headBytes)
  return frame
}

export function responseBytes(encodedBytes: number): number {
  return EMPTY_STATUS.length + 1 + varintBytes(encodedBytes) + encodedBytes
}

export function encodeErrorFrame(streamId: number, status: { code: number; message: string }): Buffer {
  const writer = new BinaryWriter()
  writer.tag(1, WireType.LengthDelimited).fork()
  writer.tag(1, WireType.Varint).int32(status.code)
  writer.tag(2, WireType.LengthDelimited).string(status.message)
  writer.join()
  return frameOf(streamId, FrameType.response, writer.finish())
}

/** Rounds up. Undefined for 0 and for more than a timer holds; 0 for a negative value, which is an expired deadline. */
export function timeoutMsOf(timeoutNano: bigint): number | undefined {
  if (timeoutNano === 0n) return undefined
  if (timeoutNano < 0n) return 0
  const timeoutMs = Math.ceil(Number(timeoutNano) / 1e6)
  return timeoutMs > LONGEST_TIMER_MS ? undefined : timeoutMs
}

/** A limit of 0 or less has expired. It becomes negative, because a `timeout_nano` of 0 means no limit. */
export function timeoutNanoOf(timeoutMs: number | undefined): bigint {
  if (timeoutMs === undefined || timeoutMs > LONGEST_TIMER_MS) return 0n
  return timeoutMs > 0 ? BigInt(Math.ceil(timeoutMs * 1e6)) : -1n
}

/** A `Response.status` of code 0 and no message: field 1, length 0. */
const EMPTY_STATUS = Uint8Array.of(0x0a, 0x00)

/** Field 2 of the response message, length-delimited. */
const PAYLOAD_TAG = 0x12

function decodeStatus(bytes: Uint8Array): { code: number; message: string } {
  const reader = new BinaryReader(bytes)
  let code = 0
  let message = ''
  while (reader.pos < reader.len) {
    const [field, type] = reader.tag()
    if (field === 1 && type === WireType.Varint) code = reader.int32()
    else if (field === 2 && type === WireType.LengthDelimited) message = reader.string()
    else reader.skip(type, field)
  }
  return { code, message }
}

function frameOf(streamId: number, type: number, payload: Uint8Array): Buffer {
  const frame = allocateFrame({ payloadBytes: payload.length, streamId, type, flags: 0 })
  frame.set(payload, FRAME_HEADER_BYTES)
  return frame
}

function varintBytes(value: number): number {
  let bytes = 1
  for (let rest = value; rest > 0x7f; rest = Math.floor(rest / 128)) bytes += 1
  return bytes
}

function writeVarint(target: Uint8Array, offset: number, value: number): void {
  let rest = value
  let position = offset
  for (; rest > 0x7f; rest = Math.floor(rest / 128)) {
    target[position] = (rest % 128) | 0x80
    position += 1
  }
  target[position] = rest
}
