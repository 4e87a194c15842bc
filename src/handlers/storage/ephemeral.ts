import { UndoList } from '../../base/undo.ts'
import type { StorageDriver } from './driver.ts'
import { fsGidOf, giveToGroup, withoutFsGid } from './fs-gid.ts'
import { reserveHugePages } from './huge-pages.ts'
import { mountStorage } from './mount-storage.ts'

/**
 * Memory that the containers of a sandbox share (spec E.3.3): /dev/shm, emptyDir volumes in memory, huge pages. Its
 * options count, so a size limit holds. It is kept until the sandbox ends.
 */
export const ephemeral: StorageDriver = {
  async attach(storage, dependencies, signal) {
    const { mountPoint, fstype } = storage
    const { files } = dependencies.os
    const gid = fsGidOf(storage.options)
    const options = withoutFsGid(storage.options)
    const undo = new UndoList(dependencies.log)
    try {
      if (fstype === 'hugetlbfs') await reserveHugePages(files, options, undo)
      await mountStorage({ ...storage, options }, dependencies, signal, async () => {
        if (gid !== undefined) await giveToGroup(files, mountPoint, gid)
      })
    } catch (error) {
      await undo.run()
      throw error
    }
    return { mountPoint, kind: 'mount', keep: true }
  },
}
