import { dirname } from 'node:path/posix'
import { AgentError } from '../../../base/errors.ts'
import { removeIfPresent, UndoList, undoOnFailure } from '../../../base/undo.ts'
import type { Files } from '../../../os/files/files.ts'
import type { StorageDriver } from '../driver.ts'
import { checkMountPoint } from '../mount-point.ts'
import { applyFsGroup, fsGidOf, setFolderGroup } from '../ownership.ts'

/** A directory of the guest that the containers of a sandbox share. It stays until the sandbox ends. */
export const local: StorageDriver = {
  async attach({ mountPoint, options, fsGroup: group }, request, signal) {
    const { files } = request.os
    const gid = fsGidOf(options)
    const mode = modeOf(options)
    return undoOnFailure(request.log, async (onRemove) => {
      const undo: Record<string, string> = {}
      const status = await files.lstat(mountPoint)
      if (status !== undefined && status.kind !== 'directory') {
        throw new AgentError(
          'INVALID_ARGUMENT',
          `storage ${mountPoint}: is a ${status.kind}, want a directory`,
        )
      }
      if (status === undefined) {
        await files.makeDirectories(dirname(mountPoint), 0o755)
        await files.makeDirectory(mountPoint, 0o755)
        undo.made = 'directory'
        addRemoval(onRemove, files, mountPoint)
      }
      // A symbolic link may have been created since the first check.
      await checkMountPoint(files, mountPoint, request.allowedRoots)
      if (mode !== undefined) await files.chmod(mountPoint, mode)
      if (gid !== undefined) await setFolderGroup(files, mountPoint, gid)
      if (group !== undefined) {
        await applyFsGroup({ root: mountPoint, group, readOnly: false }, request, signal)
      }
      signal.throwIfAborted()
      return { mountPoint, kind: 'directory', keep: true, undo, onRemove: () => onRemove.run() }
    })
  },

  async restore({ mountPoint }, { undo }, request) {
    const onRemove = new UndoList(request.log)
    if (undo.made !== undefined) addRemoval(onRemove, request.os.files, mountPoint)
    return { onRemove: () => onRemove.run() }
  },
}

function addRemoval(onRemove: UndoList, files: Files, folder: string): void {
  onRemove.add('remove directory', () => removeIfPresent('ENOENT', () => files.removeDirectory(folder)))
}

function modeOf(options: readonly string[]): number | undefined {
  const option = options.findLast((each) => each.startsWith('mode='))
  if (option === undefined) return undefined
  if (!/^mode=[0-7]{1,5}$/.test(option) || Number.parseInt(option.slice(5), 8) > 0o7777) {
    throw new AgentError('INVALID_ARGUMENT', `storage option ${option}: not an octal mode, want 0 to 7777`)
  }
  return Number.parseInt(option.slice(5), 8)
}
