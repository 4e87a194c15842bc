/** One message of the channel between `vminit` and the agent, 64 bytes in native byte order. */
export interface ChannelRecord {
  readonly version: number
  readonly kind: number
  readonly pid: number
  /** The raw wait status of an exit. */
  readonly status: number
  readonly boottimeNs: bigint
  readonly utimeUs: bigint
  readonly stimeUs: bigint
  readonly maxrssKib: bigint
  readonly sequence: bigint
}

export const RECORD_BYTES = 64
export const Kind = {
  EXIT: 1,
  OVERFLOW: 2,
  BACKLOG_END: 5,
  POWER_OFF: 16,
  END_WITH_AGENT: 19,
  UNSTORE: 21,
  ACK_EXITS: 22,
  KEEP_EXIT: 23,
  FORGET_EXIT: 24,
  GATE_OPENED: 25,
  CHECK_BROKER: 26,
} as const

/** Shares no code with the agent, so that each checks the other. */
export function parseRecord(bytes: Buffer): ChannelRecord {
  return {
    version: bytes.readUInt32LE(0),
    kind: bytes.readUInt32LE(4),
    pid: bytes.readInt32LE(8),
    status: bytes.readInt32LE(12),
    boottimeNs: bytes.readBigUInt64LE(16),
    utimeUs: bytes.readBigUInt64LE(24),
    stimeUs: bytes.readBigUInt64LE(32),
    maxrssKib: bytes.readBigUInt64LE(40),
    sequence: bytes.readBigUInt64LE(48),
  }
}

export function commandRecord(kind: number, status = 0, version = 2): Buffer {
  const bytes = Buffer.alloc(RECORD_BYTES)
  bytes.writeUInt32LE(version, 0)
  bytes.writeUInt32LE(kind, 4)
  bytes.writeInt32LE(status, 12)
  return bytes
}

export function exitCode(status: number): number | undefined {
  return (status & 0x7f) === 0 ? (status >> 8) & 0xff : undefined
}
