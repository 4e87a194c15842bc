import { normalize } from 'node:path/posix'
import { abortable } from '../../base/abort.ts'
import { AgentError, errnoOf } from '../../base/errors.ts'
import { type VolumeStatsResponse, type VolumeUsage, VolumeUsage_Unit } from '../../gen/csi.ts'
import type { Volumes } from '../../os/devices/volumes/volumes.ts'

/** GetVolumeStats of the file system that contains the path. Throws NOT_FOUND when the path does not exist. */
export async function volumeStats(
  volumes: Volumes,
  volumeGuestPath: string,
  signal: AbortSignal,
): Promise<VolumeStatsResponse> {
  const path = checkVolumePath(volumeGuestPath)
  try {
    // statfs(2) never returns when the server of the file system hangs.
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

/** The path as the kernel lists it: without `..` and trailing slash. Throws INVALID_ARGUMENT for a relative path. */
export function checkVolumePath(path: string): string {
  if (!path.startsWith('/')) {
    throw new AgentError('INVALID_ARGUMENT', `volume_guest_path "${path}": not an absolute path`)
  }
  if (path.includes('\0')) {
    throw new AgentError('INVALID_ARGUMENT', `volume_guest_path ${JSON.stringify(path)}: contains a NUL byte`)
  }
  return normalize(path).replace(/(?<=.)\/$/, '')
}

/** NOT_FOUND, as in NodeGetVolumeStats of the CSI specification. */
export function noSuchVolume(path: string): AgentError {
  return new AgentError('NOT_FOUND', `volume_guest_path ${path}: does not exist`)
}
