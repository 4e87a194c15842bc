import { UndoList } from '../../../base/undo.ts'
import type { StorageDriver } from '../driver.ts'
import { mountStorage } from '../mount-storage.ts'
import { fsGidOf, giveToGroup, withoutFsGid } from '../ownership.ts'

/**
 * Memory that the containers of a sandbox share (spec E.3.3): /dev/shm, emptyDir volumes in memory, huge pages. Its
 * options count, so a size limit holds. It is kept until the sandbox ends.
 */
export const ephemeral: StorageDriver = {
  async attach(storage, request, signal) {
    const { mountPoint, fstype } = storage
    const gid = fsGidOf(storage.options)
    const options = withoutFsGid(storage.options)
    const undo = new UndoList(request.log)
    if (fstype === 'hugetlbfs') undo.add('give back huge pages', await request.hugePages.reserve(options))
    try {
      await mountStorage({ ...storage, options }, request, signal, async () => {
        if (gid !== undefined) await giveToGroup(request.os.files, mountPoint, gid)
      })
    } catch (error) {
      await undo.run()
      throw error
    }
    return { mountPoint, kind: 'mount', keep: true, release: () => undo.run() }
  },
}
