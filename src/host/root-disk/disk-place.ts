import { realpath, stat } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import { errnoOf } from '../../base/errors.ts'
import { failed, fromNodeError } from '../../os/errors.ts'

export interface DiskPlace {
  /** Without links. */
  readonly disk: string
  readonly stateFile: string
}

/**
 * Where a disk is and where its record is: beside a file, because the state folder may live shorter than the disk, and in
 * the state folder for a block device.
 */
export async function findDiskPlace(path: string, stateFolder: string): Promise<DiskPlace> {
  const disk = await withoutLinks(path)
  const status = await stat(disk).catch((error: unknown) => {
    if (errnoOf(error) === 'ENOENT') return undefined
    throw fromNodeError('look at', disk, error)
  })
  const isDevice = status?.isBlockDevice() === true
  const stateFile = isDevice
    ? join(stateFolder, `initial-image-${encodeURIComponent(disk)}`)
    : `${disk}.initial-image`
  return { disk, stateFile }
}

/** The last name may be that of a file that is not made yet. */
async function withoutLinks(path: string): Promise<string> {
  return await realpath(path).catch(async (error: unknown) => {
    if (errnoOf(error) !== 'ENOENT') throw fromNodeError('look at', path, error)
    return join(await realpath(dirname(path)).catch(failed('look at', dirname(path))), basename(path))
  })
}
