export interface MappedTarget {
  readonly type: string
  /** Of 512 bytes. */
  readonly sectors: bigint
  readonly parameters: string
}

/** Numbers of commands (linux/dm-ioctl.h). */
export const DM_COMMAND = { create: 3, remove: 4, resume: 6, load: 9 } as const

export const DM_FLAG = { readOnly: 1 << 0, deferredRemove: 1 << 17 } as const

/** struct dm_ioctl: its size, and the offsets of its fields. */
const HEADER_BYTES = 312
const FIELDS = { version: 0, dataSize: 12, dataStart: 16, targetCount: 20, flags: 28, device: 40, name: 48 }
const NAME_BYTES = 128

/** struct dm_target_spec: its size before the parameters, and the offsets of its fields. */
const TARGET_BYTES = 40
const TARGET_FIELDS = { length: 8, next: 20, type: 24 }
const TYPE_BYTES = 16

/** The version of the interface that every kernel since 2.6 accepts. */
const MAJOR_VERSION = 4

/** The number of the ioctl(2) of a command: _IOWR(0xfd, command, struct dm_ioctl). */
export function deviceMapperRequest(command: number): number {
  return 0xc000_0000 + HEADER_BYTES * 2 ** 16 + 0xfd * 2 ** 8 + command
}

export function deviceMapperMessage(
  name: string,
  options: { flags?: number; target?: MappedTarget } = {},
): Buffer {
  const { flags = 0, target } = options
  const body = target === undefined ? Buffer.alloc(0) : targetSpec(target)
  const message = Buffer.alloc(HEADER_BYTES + body.length)
  message.writeUInt32LE(MAJOR_VERSION, FIELDS.version)
  message.writeUInt32LE(message.length, FIELDS.dataSize)
  message.writeUInt32LE(HEADER_BYTES, FIELDS.dataStart)
  message.writeUInt32LE(target === undefined ? 0 : 1, FIELDS.targetCount)
  message.writeUInt32LE(flags, FIELDS.flags)
  message.write(name, FIELDS.name, NAME_BYTES - 1, 'latin1')
  body.copy(message, HEADER_BYTES)
  return message
}

/** The N of `/dev/dm-N` in the kernel's answer. */
export function minorOf(answer: Buffer): number {
  const device = answer.readUInt32LE(FIELDS.device)
  // The kernel's encoding (huge_encode_dev): 8 bits of minor, 12 bits of major, the rest of minor.
  return (device & 0xff) | ((device >>> 12) & 0xfff00)
}

function targetSpec({ type, sectors, parameters }: MappedTarget): Buffer {
  const text = Buffer.from(parameters)
  // The parameters end with a NUL and are padded to a multiple of 8, where the next structure would begin.
  const length = TARGET_BYTES + Math.ceil((text.length + 1) / 8) * 8
  const spec = Buffer.alloc(length)
  spec.writeBigUInt64LE(sectors, TARGET_FIELDS.length)
  spec.writeUInt32LE(length, TARGET_FIELDS.next)
  spec.write(type, TARGET_FIELDS.type, TYPE_BYTES - 1, 'latin1')
  text.copy(spec, TARGET_BYTES)
  return spec
}
