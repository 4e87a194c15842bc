import { AgentError, messageOf } from '../../base/errors.ts'
import { UndoList } from '../../base/undo.ts'
import type { Storage } from '../../gen/agent.ts'
import { checkText } from './check-text.ts'
import type { StorageDependencies } from './driver.ts'
import { groupLayers, type StorageGroup } from './drivers/image/group-layers.ts'
import { isLayer } from './drivers/image/layer-options.ts'
import { mountImage } from './drivers/image/mount-image.ts'
import { createWatch } from './drivers/watchable/watch.ts'
import { HugePages } from './huge-pages.ts'
import { storageDriver } from './index.ts'
import { checkMountPoint, withoutFinalSlash } from './mount-point.ts'
import { StorageReferences } from './references.ts'
import { refuseEncryption } from './refuse-encryption.ts'

/** Attaches the storages of requests and takes them away again (spec E). */
export interface StorageHandlers {
  /**
   * Attaches them in their order, the layers of an image with its first; a mount point that is attached already only
   * gains a user. All or nothing: when one fails, or `signal` is aborted, those before it are given up again. `owner` is
   * the container's id, undefined for the sandbox.
   */
  attach(
    storages: readonly Storage[],
    owner: string | undefined,
    signal: AbortSignal,
  ): Promise<AttachedStorages>
  /**
   * Gives them up, the last first; what nobody uses any more is unmounted, but what is shared, `local` or `ephemeral`
   * stays until all is cleared. To be called once. Tries all, then throws INTERNAL naming what failed.
   */
  release(attached: AttachedStorages): Promise<void>
  /** Takes away what has stayed, at the sandbox's end and before its root is cleared. Tries all, then throws the first failure. */
  clear(): Promise<void>
  /** Whether a storage that somebody uses is at or below `folder`. */
  isUsed(folder: string): boolean
}

/** The storages of one request, in its order; the layers of an image are one. */
export interface AttachedStorages {
  readonly mountPoints: readonly string[]
}

/** Builds the storage handlers around an empty set of claims. */
export function createStorageHandlers(
  given: Omit<StorageDependencies, 'hugePages' | 'watch'>,
): StorageHandlers {
  const hugePages = new HugePages(given.os.files)
  const dependencies = { ...given, hugePages, watch: createWatch(given.os.clock) }
  const claims = new StorageReferences(dependencies.os)

  async function attachOne(
    group: StorageGroup,
    owner: string | undefined,
    signal: AbortSignal,
  ): Promise<'made' | 'joined'> {
    const [storage] = group
    const { mountPoint, driver: name } = storage
    const shared = group.some((each) => each.shared)
    const driver = storageDriver(name)
    for (const layer of group) storageDriver(layer.driver)
    group.forEach(checkText)
    group.forEach(refuseEncryption)
    await checkMountPoint(dependencies.os.files, mountPoint, dependencies.allowedRoots)
    const attach = () =>
      isLayer(storage)
        ? mountImage(group, dependencies, signal)
        : driver.attach(storage, { ...dependencies, owner }, signal)
    const outcome = await claims.acquire({ mountPoint, shared, attach }, signal)
    dependencies.log.debug('storage attached', { driver: name, mountPoint, owner, outcome })
    return outcome
  }

  return {
    async attach(requested, owner, signal) {
      const groups = groupLayers(requested.map(inPlainForm))
      const undo = new UndoList(dependencies.log)
      try {
        for (const group of groups) {
          const [{ mountPoint }] = group
          signal.throwIfAborted()
          const newlyMade = (await attachOne(group, owner, signal)) === 'made'
          undo.add(`release ${mountPoint}`, () => claims.release(mountPoint, { newlyMade }))
        }
        return { mountPoints: groups.map(([{ mountPoint }]) => mountPoint) }
      } catch (error) {
        await undo.run()
        throw error
      }
    },

    async release({ mountPoints }) {
      const failures: unknown[] = []
      for (const mountPoint of mountPoints.toReversed()) {
        await claims.release(mountPoint).catch((error) => failures.push(error))
      }
      if (failures.length === 0) return
      throw new AgentError('INTERNAL', `storage not released: ${failures.map(messageOf).join('; ')}`, {
        cause: failures[0],
      })
    },

    clear: () => claims.clear(),

    isUsed: (folder) => claims.isUsed(folder),
  }
}

/** Whoever asks for the same mount point writes it in the same way from here on. */
function inPlainForm(storage: Storage): Storage {
  return { ...storage, mountPoint: withoutFinalSlash(storage.mountPoint) }
}
