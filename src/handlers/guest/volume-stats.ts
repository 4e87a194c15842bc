import { normalize } from 'node:path/posix'
import { abortable } from '../../base/abort.ts'
import { AgentError, errnoOf } from '../../base/errors.ts'
import { type VolumeStatsResponse, type VolumeUsage, VolumeUsage_Unit } from '../../gen/csi.ts'
import type { Volumes } from '../../os/devices/volumes/volumes.ts'

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

/**
 * The path of a volume as the kernel lists it: no `..`, no slash at its end. Throws INVALID_ARGUMENT for what is no
 * absolute path.
 */
export function checkVolumePath(path: string): string {
  if (!path.startsWith('/')) {
    throw new AgentError('INVALID_ARGUMENT', `volume_guest_path '${path}' is not absolute`)
  }
  if (path.includes('\0')) {
    throw new AgentError('INVALID_ARGUMENT', `volume_guest_path ${JSON.stringify(path)} contains a NUL`)
  }
  return normalize(path).replace(/(?<=.)\/$/, '')
}

/** What is said of a volume that is not there: as a CSI node would. */
export function noSuchVolume(path: string): AgentError {
  return new AgentError('NOT_FOUND', `volume_guest_path ${path} does not exist`)
}
