import { AgentError } from '../../../base/errors.ts'
import { readPart } from '../../files/read-head.ts'
import type { Native } from '../../native.ts'
import { controlFileSystem } from './control.ts'
import type { FileSystemGrowth } from './growth.ts'

/** _IOW('f', 16, __u64): the new number of blocks. The kernel does all the work of growing. */
const EXT4_IOC_RESIZE_FS = 0x4008_6610

/** The superblock (Documentation/filesystems/ext4/super.rst): its offset on the device, and its fields' offsets. */
const SUPERBLOCK = { offset: 1024, bytes: 1024, magic: 0xef53 }
const FIELDS = { blocksLow: 0x4, logBlockSize: 0x18, magic: 0x38, incompatible: 0x60, blocksHigh: 0x150 }
const INCOMPATIBLE_64BIT = 0x80

/** Growth of ext4. Only the superblock has the whole size: statfs(2) leaves out ext4's own bookkeeping. */
export function ext4Growth(native: Native): FileSystemGrowth {
  return {
    async size({ device }) {
      const superblock = await readSuperblock(device)
      const has64Bit = (superblock.readUInt32LE(FIELDS.incompatible) & INCOMPATIBLE_64BIT) !== 0
      const high = has64Bit ? BigInt(superblock.readUInt32LE(FIELDS.blocksHigh)) : 0n
      return {
        blockBytes: 1024n << BigInt(superblock.readUInt32LE(FIELDS.logBlockSize)),
        blocks: (high << 32n) | BigInt(superblock.readUInt32LE(FIELDS.blocksLow)),
      }
    },

    async grow({ mountPoint }, blocks) {
      const argument = Buffer.alloc(8)
      argument.writeBigUInt64LE(blocks)
      await controlFileSystem(native, mountPoint, {
        call: 'grow ext4 at',
        request: EXT4_IOC_RESIZE_FS,
        argument,
      })
    },
  }
}

/** The superblock is up to date, because the mounted file system shares its buffers with readers of the device. */
async function readSuperblock(device: string): Promise<Buffer> {
  const { offset, bytes, magic } = SUPERBLOCK
  const block = await readPart(device, offset, bytes)
  if (block.length < bytes || block.readUInt16LE(FIELDS.magic) !== magic)
    throw new AgentError('INTERNAL', `${device}: no ext4 superblock`)
  return block
}
