import type { Files } from '../../../os/files/files.ts'
import type { StorageDependencies, StorageDriver } from '../driver.ts'
import { mountStorage } from '../mount-storage.ts'
import { makeFilesystem, wantsFilesystem } from './block-filesystem.ts'

/** Finds a disk by what a storage calls its source, and returns its device node. Waits for it if need be. */
type FindDisk = (source: string, dependencies: StorageDependencies, signal: AbortSignal) => Promise<string>

/** A driver of disks, which also finds one for others. */
export interface DiskDriver extends StorageDriver {
  readonly find: FindDisk
}

/** The driver of a kind of disk (spec E.3 and E.3.1): they differ in how the disk is found alone. */
export function blockDriver(find: FindDisk): DiskDriver {
  return {
    find,

    async attach(storage, dependencies, signal) {
      const makeFirst = wantsFilesystem(storage)
      let disk = ''
      const source = async () => {
        disk = await find(storage.source, dependencies, signal)
        if (makeFirst) await makeFilesystem(dependencies.os.tools, disk, signal)
        return disk
      }
      await mountStorage({ ...storage, source }, dependencies, signal)
      const lost = () => lossOf(dependencies.os.files, disk)
      return { mountPoint: storage.mountPoint, kind: 'mount', keep: false, lost }
    },
  }
}

/** The kernel gives the name of a disk that was pulled out to no other one as long as it is mounted. */
async function lossOf(files: Files, disk: string): Promise<string | undefined> {
  return (await files.stat(disk))?.kind === 'block' ? undefined : `its disk ${disk} is gone`
}
