import { dirname } from 'node:path/posix'
import { AgentError } from '../../../base/errors.ts'
import { UndoList } from '../../../base/undo.ts'
import type { Files } from '../../../os/files/files.ts'
import type { StorageDriver } from '../driver.ts'
import { checkMountPoint } from '../mount-point.ts'
import { applyFsGroup, fsGidOf, giveToGroup } from '../ownership.ts'

/** A directory of the guest that the containers of a sandbox share (spec E.3.4). It is kept until the sandbox ends. */
export const local: StorageDriver = {
  async attach({ mountPoint, options, fsGroup: group }, request, signal) {
    const { files } = request.os
    const gid = fsGidOf(options)
    const mode = modeOf(options)
    const undo = new UndoList(request.log)
    try {
      const status = await files.lstat(mountPoint)
      if (status !== undefined && status.kind !== 'directory') {
        throw new AgentError('INVALID_ARGUMENT', `storage ${mountPoint}: a ${status.kind} is there`)
      }
      if (status === undefined) {
        await files.makeDirectories(dirname(mountPoint), 0o755)
        await files.makeDirectory(mountPoint, 0o755)
        undo.add('remove directory', () => removeIfThere(files, mountPoint))
      }
      // Looked at again now that all of it exists: a link may have been made meanwhile.
      await checkMountPoint(files, mountPoint, request.allowedRoots)
      if (mode !== undefined) await files.chmod(mountPoint, mode)
      if (gid !== undefined) await giveToGroup(files, mountPoint, gid)
      if (group !== undefined) {
        await applyFsGroup({ root: mountPoint, group, readOnly: false }, request, signal)
      }
      signal.throwIfAborted()
    } catch (error) {
      await undo.run()
      throw error
    }
    return { mountPoint, kind: 'directory', keep: true, release: () => undo.run() }
  },
}

/** Somebody may have cleaned up meanwhile. */
async function removeIfThere(files: Files, directory: string): Promise<void> {
  if ((await files.lstat(directory)) !== undefined) await files.removeDirectory(directory)
}

function modeOf(options: readonly string[]): number | undefined {
  const option = options.findLast((each) => each.startsWith('mode='))
  if (option === undefined) return undefined
  if (!/^mode=[0-7]{1,5}$/.test(option) || Number.parseInt(option.slice(5), 8) > 0o7777) {
    throw new AgentError('INVALID_ARGUMENT', `storage option ${option}: not an octal mode`)
  }
  return Number.parseInt(option.slice(5), 8)
}
