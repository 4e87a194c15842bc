/** Size of every message between vminit and the agent, in both directions. */
export const RECORD_BYTES = 64

const VERSION = 1

/** The kinds of records; vminit's own list is in native/init/channel/record.h. */
export const RecordKind = {
  EXIT: 1,
  OVERFLOW: 2,
  SHUTDOWN: 3,
  POWER_OFF: 16,
  EXIT_WITH: 17,
  END_WITH_AGENT: 19,
  STORE: 20,
} as const

/**
 * A message, on the wire little endian: `u32 version, u32 kind, i32 pid, i32 status, u64 boottime_ns,
 * u64 utime_us, u64 stime_us, u64 maxrss_kib, u64 sequence, u64 reserved`. In STORE a name follows the kind: 32 bytes,
 * the last of them 0.
 */
export interface ChannelRecord {
  readonly kind: number
  readonly pid: number
  /** EXIT: the kernel's wait status. SHUTDOWN: a signal. EXIT_WITH: an exit status. */
  readonly status: number
  readonly boottimeNs: bigint
  readonly userTimeUs: bigint
  readonly systemTimeUs: bigint
  readonly maxRssKib: bigint
  /** EXIT: a running number. OVERFLOW: the number of lost records. */
  readonly sequence: bigint
}

/** The message of a command to vminit. */
export function encodeCommand(kind: number, status: number): Buffer {
  const record = Buffer.alloc(RECORD_BYTES)
  record.writeUInt32LE(VERSION, 0)
  record.writeUInt32LE(kind, 4)
  record.writeInt32LE(status, 12)
  return record
}

/** The longest name of a stored descriptor, in bytes. */
const NAME_BYTES = 31

/** The message that comes with a descriptor to store. Throws RangeError for a name that is too long. */
export function encodeStore(name: string): Buffer {
  if (name.length > NAME_BYTES) throw new RangeError(`name ${name}: longer than ${NAME_BYTES} bytes`)
  const record = encodeCommand(RecordKind.STORE, 0)
  record.write(name, 8, 'latin1')
  return record
}

/** Decodes the record at the start of `bytes`; undefined for an unknown version. */
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
