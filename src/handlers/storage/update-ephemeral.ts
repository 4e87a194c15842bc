import { AgentError } from '../../base/errors.ts'
import type { Storage } from '../../gen/agent.ts'
import { checkText } from './check-text.ts'
import { checkMountPoint, withoutFinalSlash } from './mount-point.ts'
import { type MountDependencies, mountStorage } from './mount-storage.ts'
import { withoutFsGid } from './ownership.ts'

/**
 * Mounts ephemeral storages anew (spec C.8): with the option `remount` and another size, mostly, after memory was
 * plugged in. Throws INVALID_ARGUMENT, touching nothing, when one of them has another driver.
 */
export async function updateEphemeral(
  dependencies: MountDependencies,
  storages: readonly Storage[],
  signal: AbortSignal,
): Promise<void> {
  const other = storages.find(({ driver }) => driver !== 'ephemeral')
  if (other !== undefined) {
    const text = `storage ${withoutFinalSlash(other.mountPoint)}: driver '${other.driver}' cannot be updated, only ephemeral`
    throw new AgentError('INVALID_ARGUMENT', text)
  }
  for (const storage of storages) await updateOne(dependencies, storage, signal)
}

async function updateOne(
  dependencies: MountDependencies,
  given: Storage,
  signal: AbortSignal,
): Promise<void> {
  const { files } = dependencies.os
  const storage = { ...given, mountPoint: withoutFinalSlash(given.mountPoint) }
  checkText(storage)
  await checkMountPoint(files, storage.mountPoint, dependencies.allowedRoots)
  if (storage.options.length === 0) return files.makeDirectories(storage.mountPoint, 0o755)
  // The group was given when it was attached.
  const request = { ...storage, options: withoutFsGid(storage.options), fsGroup: undefined }
  await mountStorage(request, dependencies, signal)
}
