/** What a device of the device mapper is made of. */
export interface MappedTarget {
  /** `verity`. */
  readonly type: string
  /** Its size, in sectors of 512 bytes. */
  readonly sectors: bigint
  readonly parameters: string
}

/** linux/dm-ioctl.h: the commands that are used here. */
export const DM_COMMAND = { create: 3, remove: 4, resume: 6, load: 9 } as const

/** Flags of a message. */
export const DM_FLAG = { readOnly: 1 << 0, deferredRemove: 1 << 17 } as const

/** struct dm_ioctl: its size, the part of it that the kernel must get, and where its fields are. */
const HEADER_BYTES = 312
const FIELDS = { version: 0, dataSize: 12, dataStart: 16, targetCount: 20, flags: 28, device: 40, name: 48 }
const NAME_BYTES = 128

/** struct dm_target_spec, which the target's parameters follow. */
const TARGET_BYTES = 40
const TARGET_FIELDS = { length: 8, next: 20, type: 24 }
const TYPE_BYTES = 16

/** Of the interface: what every kernel since 2.6 understands. */
const MAJOR_VERSION = 4

/** The number of the ioctl(2) of a command: _IOWR(0xfd, command, struct dm_ioctl). */
export function deviceMapperRequest(command: number): number {
  return 0xc000_0000 + HEADER_BYTES * 2 ** 16 + 0xfd * 2 ** 8 + command
}

/** The argument of a command about the device of a name, with room for the kernel's answer. */
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

/** The minor number of the device that the kernel's answer names: the N of `/dev/dm-N`. */
export function minorOf(answer: Buffer): number {
  const device = answer.readUInt32LE(FIELDS.device)
  // The kernel's own form of device numbers (huge_encode_dev): minor, 12 bits of major, the rest of minor.
  return (device & 0xff) | ((device >>> 12) & 0xfff00)
}

function targetSpec({ type, sectors, parameters }: MappedTarget): Buffer {
  const text = Buffer.from(parameters)
  // With a NUL, and the next structure, which does not come, at a multiple of 8.
  const length = TARGET_BYTES + Math.ceil((text.length + 1) / 8) * 8
  const spec = Buffer.alloc(length)
  spec.writeBigUInt64LE(sectors, TARGET_FIELDS.length)
  spec.writeUInt32LE(length, TARGET_FIELDS.next)
  spec.write(type, TARGET_FIELDS.type, TYPE_BYTES - 1, 'latin1')
  text.copy(spec, TARGET_BYTES)
  return spec
}
