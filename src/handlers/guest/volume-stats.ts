import { abortable } from '../../base/abort.ts'
import { errnoOf } from '../../base/errors.ts'
import { type VolumeStatsResponse, type VolumeUsage, VolumeUsage_Unit } from '../../gen/csi.ts'
import type { Volumes } from '../../os/devices/volumes/volumes.ts'
import { checkVolumePath, noSuchVolume } from './volume-path.ts'

/**
 * GetVolumeStats (spec C.35): bytes and inodes of the file system that the path is on, whether or not it is mounted at
 * the path itself. Throws NOT_FOUND when there is nothing at the path.
 */
export async function volumeStats(
  volumes: Volumes,
  volumeGuestPath: string,
  signal: AbortSignal,
): Promise<VolumeStatsResponse> {
  const path = checkVolumePath(volumeGuestPath)
  try {
    // A file system whose server hangs never answers.
    const { blockBytes, blocks, freeBlocks, inodes, freeInodes } = await abortable(
      volumes.usage(path),
      signal,
    )
    return {
      usage: [
        usageOf(VolumeUsage_Unit.BYTES, blocks * blockBytes, freeBlocks * blockBytes),
        usageOf(VolumeUsage_Unit.INODES, inodes, freeInodes),
      ],
      volumeCondition: { abnormal: false, message: 'OK' },
    }
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') throw noSuchVolume(path)
    throw error
  }
}

function usageOf(unit: VolumeUsage_Unit, total: bigint, available: bigint): VolumeUsage {
  return { unit, total, available, used: total - available }
}
