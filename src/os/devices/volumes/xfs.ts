import type { Native } from '../../native.ts'
import { controlFileSystem } from './control.ts'
import type { FileSystemGrowth } from './growth.ts'

/** _IOR('X', 100, struct xfs_fsop_geom_v1), which every kernel has, and the offsets of its fields (xfs/xfs_fs.h). */
const XFS_IOC_FSGEOMETRY_V1 = 0x8070_5864
const GEOMETRY = { bytes: 0x70, blockBytes: 0x0, inodePercent: 0x1c, dataBlocks: 0x20 }

/** _IOW('X', 110, struct xfs_growfs_data): the new number of blocks, and the largest share of inodes. */
const XFS_IOC_FSGROWFSDATA = 0x4010_586e
const GROWTH = { bytes: 0x10, blocks: 0x0, inodePercent: 0x8 }

/** Growth of XFS. The kernel leaves out a last group of fewer than 64 blocks. */
export function xfsGrowth(native: Native): FileSystemGrowth {
  const readGeometry = async (mountPoint: string) => {
    const argument = Buffer.alloc(GEOMETRY.bytes)
    await controlFileSystem(native, mountPoint, {
      call: 'read the geometry of xfs at',
      request: XFS_IOC_FSGEOMETRY_V1,
      argument,
    })
    return argument
  }
  return {
    async size({ mountPoint }) {
      const geometry = await readGeometry(mountPoint)
      return {
        blockBytes: BigInt(geometry.readUInt32LE(GEOMETRY.blockBytes)),
        blocks: geometry.readBigUInt64LE(GEOMETRY.dataBlocks),
      }
    },

    async grow({ mountPoint }, blocks) {
      const geometry = await readGeometry(mountPoint)
      const argument = Buffer.alloc(GROWTH.bytes)
      argument.writeBigUInt64LE(blocks, GROWTH.blocks)
      // The share of inodes stays the same.
      argument.writeUInt32LE(geometry.readUInt32LE(GEOMETRY.inodePercent), GROWTH.inodePercent)
      await controlFileSystem(native, mountPoint, {
        call: 'grow xfs at',
        request: XFS_IOC_FSGROWFSDATA,
        argument,
      })
    },
  }
}
