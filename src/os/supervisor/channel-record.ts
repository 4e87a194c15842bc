/** Size of every message between vminit and the agent, in both directions. */
export const RECORD_BYTES = 64

const VERSION = 2

/** The kinds of records; vminit's own list is in native/init/channel/record.h. */
export const RecordKind = {
  EXIT: 1,
  OVERFLOW: 2,
  SHUTDOWN: 3,
  STORE_RESULT: 4,
  BACKLOG_END: 5,
  FREEZE_RESULT: 6,
  THAWED: 7,
  POWER_OFF: 16,
  END_WITH_AGENT: 19,
  STORE: 20,
  UNSTORE: 21,
  ACK_EXITS: 22,
  KEEP_EXIT: 23,
  FORGET_EXIT: 24,
  GATE_OPENED: 25,
  CHECK_BROKER: 26,
  HOLD_FILE_SYSTEM: 27,
  HOLD_CGROUP: 28,
  ARM_THAW: 29,
  FREEZE: 30,
  THAW: 31,
} as const

/**
 * A message, little endian: `u32 version, u32 kind, i32 pid, i32 status, u64 boottime_ns, u64 utime_us, u64 stime_us,
 * u64 maxrss_kib, u64 sequence, u64 reserved`. In messages about the store and freezes, a name of 32 bytes, the last of which is 0,
 * and `i32 result` follow the kind (docs/vminit.md).
 */
export interface ChannelRecord {
  readonly kind: number
  readonly pid: number
  /** EXIT: the kernel's wait status. SHUTDOWN: a signal. */
  readonly status: number
  readonly boottimeNs: bigint
  readonly userTimeUs: bigint
  readonly systemTimeUs: bigint
  readonly maxRssKib: bigint
  /** EXIT: a running number, 0 for a kept exit. OVERFLOW: the number of lost records. */
  readonly sequence: bigint
}

export interface StoreResult {
  readonly name: string
  /** 0, or an errno. */
  readonly errno: number
}

export function encodeCommand(
  kind: number,
  { pid = 0, sequence = 0n }: Partial<Pick<ChannelRecord, 'pid' | 'sequence'>> = {},
): Buffer {
  const record = Buffer.alloc(RECORD_BYTES)
  record.writeUInt32LE(VERSION, 0)
  record.writeUInt32LE(kind, 4)
  record.writeInt32LE(pid, 8)
  record.writeBigUInt64LE(sequence, 48)
  return record
}

const NAME_BYTES = 31

const NAME_AT = 8
const RESULT_AT = NAME_AT + NAME_BYTES + 1

/** In the result of a command about the store: a success is not answered. */
export const ONLY_REFUSAL = 1

/** Throws RangeError for a name that is too long. */
export function encodeNamed(kind: number, name: string, result = 0): Buffer {
  if (name.length > NAME_BYTES) throw new RangeError(`name ${name}: longer than ${NAME_BYTES} bytes`)
  const record = encodeCommand(kind)
  record.write(name, NAME_AT, 'latin1')
  record.writeInt32LE(result, RESULT_AT)
  return record
}

export function decodeStoreResult(bytes: Buffer): StoreResult {
  return {
    name: bytes.toString('latin1', NAME_AT, Math.min(bytes.indexOf(0, NAME_AT), RESULT_AT)),
    errno: bytes.readInt32LE(RESULT_AT),
  }
}

/** undefined for an unknown version. */
export function decodeRecord(bytes: Buffer): ChannelRecord | undefined {
  if (bytes.readUInt32LE(0) !== VERSION) return undefined
  return {
    kind: bytes.readUInt32LE(4),
    pid: bytes.readInt32LE(8),
    status: bytes.readInt32LE(12),
    boottimeNs: bytes.readBigUInt64LE(16),
    userTimeUs: bytes.readBigUInt64LE(24),
    systemTimeUs: bytes.readBigUInt64LE(32),
    maxRssKib: bytes.readBigUInt64LE(40),
    sequence: bytes.readBigUInt64LE(48),
  }
}

/** The exit code and the signal in the wait status of an ended process (wait(2)). */
export function decodeWaitStatus(status: number): {
  readonly exitCode: number
  readonly signal: number | undefined
} {
  const signal = status & 0x7f
  if (signal !== 0) return { exitCode: 128 + signal, signal }
  return { exitCode: (status >> 8) & 0xff, signal: undefined }
}
