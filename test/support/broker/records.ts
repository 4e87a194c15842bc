// The records of native/broker/protocol.h.

export const Vminit = { agent: 1, hung: 2, ping: 3, pong: 4, leave: 5 } as const

export const Control = {
  hello: 1,
  pong: 2,
  stop: 3,
  close: 4,
  confirm: 5,
  connection: 16,
  requestState: 17,
  ready: 18,
  ping: 19,
  file: 20,
} as const

export const State = { open: 0, written: 1, dropped: 2, answered: 3 } as const

export const Envelope = {
  request: 1,
  oversized: 2,
  written: 3,
  dropped: 4,
  lost: 5,
  answer: 16,
  nothing: 17,
  confirm: 18,
} as const

export const PROTOCOL_VERSION = 3
const CONTROL_HEADER_BYTES = 24
const ENVELOPE_BYTES = 32
/** Flag of an answer: the broker reports its outcome. */
export const KEEP = 1
/** Flag of an answer: its last bytes are in a file in memory. */
export const IN_FILE = 2
export const RequestFlag = { sentBefore: 1, noRoom: 2, inFile: 4 } as const

export interface ControlMessage {
  readonly kind: number
  readonly flags: number
  readonly a: bigint
  readonly b: bigint
  readonly payload: Buffer
}

export function encodeControl(message: Partial<ControlMessage> & { readonly kind: number }): Buffer {
  const header = Buffer.alloc(CONTROL_HEADER_BYTES)
  header.writeUInt32LE(message.kind, 0)
  header.writeUInt32LE(message.flags ?? 0, 4)
  header.writeBigUInt64LE(message.a ?? 0n, 8)
  header.writeBigUInt64LE(message.b ?? 0n, 16)
  return Buffer.concat([header, message.payload ?? Buffer.alloc(0)])
}

export function parseControl(data: Buffer): ControlMessage {
  return {
    kind: data.readUInt32LE(0),
    flags: data.readUInt32LE(4),
    a: data.readBigUInt64LE(8),
    b: data.readBigUInt64LE(16),
    payload: data.subarray(CONTROL_HEADER_BYTES),
  }
}

export interface Hello {
  readonly maxConnections: number
  readonly firstBytesMs: number
  readonly maxPayloadBytes: number
  readonly budgetBytes: number
  readonly hangMs: number
  readonly allowLoopback: boolean
  readonly version: number
}

export const HELLO: Hello = {
  maxConnections: 1024,
  firstBytesMs: 10_000,
  maxPayloadBytes: 4 << 20,
  budgetBytes: 96 << 20,
  hangMs: 0,
  allowLoopback: false,
  version: PROTOCOL_VERSION,
}

export function encodeHello(hello: Hello): Buffer {
  const payload = Buffer.alloc(36)
  payload.writeUInt32LE(hello.maxConnections, 0)
  payload.writeUInt32LE(hello.firstBytesMs, 4)
  payload.writeUInt32LE(hello.maxPayloadBytes, 8)
  payload.writeBigUInt64LE(BigInt(hello.budgetBytes), 12)
  const flags = hello.allowLoopback ? 1 : 0
  return encodeControl({
    kind: Control.hello,
    flags,
    a: BigInt(hello.version),
    b: BigInt(hello.hangMs),
    payload,
  })
}

export function parseStates({ a, flags, payload }: ControlMessage): readonly (readonly [bigint, number])[] {
  const states: (readonly [bigint, number])[] = [[a, flags]]
  for (let offset = 0; offset < payload.length; offset += 16)
    states.push([payload.readBigUInt64LE(offset), Number(payload.readBigUInt64LE(offset + 8))])
  return states
}

export interface Peer {
  readonly kind: number
  readonly cid: number
  readonly port: number
  readonly address: string
  readonly firstBytes: Buffer
}

export function parsePeer(payload: Buffer): Peer {
  const end = 16 + payload.readUInt32LE(12)
  return {
    kind: payload.readUInt32LE(0),
    cid: payload.readUInt32LE(4),
    port: payload.readUInt32LE(8),
    address: payload.toString('latin1', 16, end),
    firstBytes: payload.subarray(end + 4, end + 4 + payload.readUInt32LE(end)),
  }
}

export interface EnvelopeRecord {
  readonly kind: number
  readonly flags: number
  readonly number: bigint
  readonly ageNs: bigint
  /** A ttRPC frame with its header, or empty. */
  readonly frame: Buffer
  /** The length of a frame in a file, or 0. */
  readonly fileBytes: number
}

/** Encodes an envelope and its frame from `offset` on, without the last `fileBytes`, which are in a file. */
export function encodeEnvelope(
  kind: number,
  number: bigint,
  frame: Buffer = Buffer.alloc(0),
  flags = 0,
  { offset = 0, fileBytes = 0 } = {},
): Buffer {
  const header = Buffer.alloc(ENVELOPE_BYTES)
  header.writeUInt32LE(kind, 0)
  header.writeUInt32LE(flags, 4)
  header.writeBigUInt64LE(number, 8)
  header.writeBigUInt64LE(BigInt(offset), 16)
  header.writeUInt32LE(frame.length, 24)
  header.writeUInt32LE(fileBytes, 28)
  return Buffer.concat([header, frame.subarray(0, Math.max(0, frame.length - fileBytes))])
}

/** Cuts a byte stream into records. `sizeOf` returns the size of the first record once it is known. */
export function cutter(
  sizeOf: (bytes: Buffer) => number | undefined,
  take: (record: Buffer) => void,
): (chunk: Buffer) => void {
  let chunks: Buffer[] = []
  let length = 0
  let wanted = 0
  return (chunk) => {
    chunks.push(chunk)
    length += chunk.length
    if (length < wanted) return
    let bytes = chunks.length === 1 ? chunk : Buffer.concat(chunks)
    let size = sizeOf(bytes)
    for (; size !== undefined && bytes.length >= size; size = sizeOf(bytes)) {
      take(bytes.subarray(0, size))
      bytes = bytes.subarray(size)
    }
    chunks = [bytes]
    length = bytes.length
    wanted = size ?? 0
  }
}

export function envelopeSize(bytes: Buffer): number | undefined {
  if (bytes.length < ENVELOPE_BYTES) return undefined
  return ENVELOPE_BYTES + (isInFile(bytes) ? 0 : bytes.readUInt32LE(24))
}

function isInFile(record: Buffer): boolean {
  return record.readUInt32LE(0) === Envelope.request && (record.readUInt32LE(4) & RequestFlag.inFile) !== 0
}

export function parseEnvelope(record: Buffer): EnvelopeRecord {
  return {
    kind: record.readUInt32LE(0),
    flags: record.readUInt32LE(4),
    number: record.readBigUInt64LE(8),
    ageNs: record.readBigUInt64LE(16),
    frame: record.subarray(ENVELOPE_BYTES),
    fileBytes: isInFile(record) ? record.readUInt32LE(24) : 0,
  }
}
