import { AgentError } from '../../../base/errors.ts'
import { UndoList, undoOnFailure } from '../../../base/undo.ts'
import type { Storage } from '../../../gen/agent.ts'
import type { StorageDriver, StorageRequest } from '../driver.ts'
import { checkMountPoint, withoutFinalSlash } from '../mount-point.ts'
import { type MountContext, mountStorage } from '../mount-storage.ts'
import { fsGidOf, setFolderGroup, withoutFsGid } from '../ownership.ts'
import { refuseNul } from '../validation.ts'
import type { ReservedPages } from './huge-pages.ts'

/** Memory that a sandbox's containers share: /dev/shm, emptyDir volumes, huge pages. Stays until the sandbox ends. */
export const ephemeral: StorageDriver = {
  async attach(storage, request, signal) {
    const { mountPoint, fstype } = storage
    const hasHugePages = fstype === 'hugetlbfs'
    // Shims join the options of huge pages by commas. Options of a tmpfs may contain commas (`mpol=bind:0,2`).
    const given = hasHugePages ? storage.options.flatMap((option) => option.split(',')) : storage.options
    const gid = fsGidOf(given)
    const options = withoutFsGid(given)
    return undoOnFailure(request.log, async (onRemove) => {
      const reserved = hasHugePages ? await request.hugePages.reserve(options) : undefined
      addRelease(onRemove, reserved, request)
      await mountStorage({ ...storage, options }, request, signal, async () => {
        if (gid !== undefined) await setFolderGroup(request.os.files, mountPoint, gid)
      })
      return {
        mountPoint,
        kind: 'mount',
        keep: true,
        onRemove: () => onRemove.run(),
        ...(reserved && { undo: undoOf(reserved) }),
      }
    })
  },

  async restore(_storage, { undo }, request) {
    const reserved = reservedOf(undo)
    if (reserved !== undefined) request.hugePages.restore(reserved)
    const onRemove = new UndoList(request.log)
    addRelease(onRemove, reserved, request)
    return { onRemove: () => onRemove.run() }
  },
}

function addRelease(
  undo: UndoList,
  reserved: ReservedPages | undefined,
  { hugePages }: StorageRequest,
): void {
  if (reserved !== undefined) undo.add('release huge pages', () => hugePages.release(reserved))
}

function undoOf({ pageSize, pages, before }: ReservedPages): Record<string, string> {
  return { pageSize: `${pageSize}`, pages: `${pages}`, before: `${before}` }
}

function reservedOf(undo: Readonly<Record<string, string>>): ReservedPages | undefined {
  const { pageSize, pages, before } = undo
  if (pageSize === undefined || pages === undefined || before === undefined) return undefined
  return { pageSize: BigInt(pageSize), pages: BigInt(pages), before: BigInt(before) }
}

/**
 * Mounts ephemeral storages again, usually with the option `remount` and a new size after memory was hot-plugged.
 * Throws INVALID_ARGUMENT and changes nothing when one of them has another driver.
 */
export async function updateEphemeral(
  dependencies: MountContext,
  storages: readonly Storage[],
  signal: AbortSignal,
): Promise<void> {
  const other = storages.find(({ driver }) => driver !== 'ephemeral')
  if (other !== undefined) {
    const text = `storage ${withoutFinalSlash(other.mountPoint)}: driver "${other.driver}" cannot be updated, want ephemeral`
    throw new AgentError('INVALID_ARGUMENT', text)
  }
  for (const storage of storages) await updateOne(dependencies, storage, signal)
}

async function updateOne(dependencies: MountContext, given: Storage, signal: AbortSignal): Promise<void> {
  const { files } = dependencies.os
  const storage = { ...given, mountPoint: withoutFinalSlash(given.mountPoint) }
  refuseNul(storage)
  await checkMountPoint(files, storage.mountPoint, dependencies.allowedRoots)
  if (storage.options.length === 0) return files.makeDirectories(storage.mountPoint, 0o755)
  // The group was set when the storage was attached.
  const request = { ...storage, options: withoutFsGid(storage.options), fsGroup: undefined }
  await mountStorage(request, dependencies, signal)
}
