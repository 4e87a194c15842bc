import { AgentError, messageOf } from '../../base/errors.ts'
import { inStep } from '../../base/step.ts'
import { undoOnFailure } from '../../base/undo.ts'
import type { Storage } from '../../gen/agent.ts'
import type { StoragePayload } from '../../gen/state/storage.ts'
import type { AttachmentData } from './attachment.ts'
import type { StorageContext } from './driver.ts'
import { storageDriver } from './driver-table.ts'
import { isDiskDriver } from './drivers/block.ts'
import { HugePages } from './drivers/huge-pages.ts'
import { groupLayers, isLayer, type StorageGroup } from './drivers/image/layer-options.ts'
import { erofsMultiLayer, mountImage } from './drivers/image/mount-image.ts'
import { createWatch } from './drivers/watchable/watch-roots.ts'
import { checkMountPoint, withoutFinalSlash } from './mount-point.ts'
import { StorageReferences, type StorageView } from './references.ts'
import { refuseEncryption, refuseNul } from './validation.ts'

export interface StorageHandlers {
  /**
   * Attaches storages in order, the layers of an image together. A storage that is attached already gains a
   * reference; another one at its mount point is FAILED_PRECONDITION. When one fails or `signal` is aborted, the earlier ones are released. `owner` is the
   * container's id, undefined for the sandbox.
   */
  attach(
    storages: readonly Storage[],
    owner: string | undefined,
    signal: AbortSignal,
  ): Promise<AttachedStorages>
  /**
   * Releases storages, the last first; shared, `local` and `ephemeral` ones stay attached until `clear`. May be called
   * only once. Tries all, then throws INTERNAL with every error.
   */
  release(attached: AttachedStorages): Promise<void>
  /** Detaches the rest before the sandbox's root folder is removed. Tries all, then throws the first error. */
  clear(): Promise<void>
  list(): readonly StorageView[]
  /** Whether a storage with references is at or below `folder`. */
  isUsed(folder: string): boolean
  /** The mount points that `attach` attaches for these storages, in its order. */
  mountPointsOf(storages: readonly Storage[]): string[]
  /** See `StorageReferences.restore`. */
  restore(references: ReadonlyMap<string, number>): Promise<void>
}

/** The storages of one request, in its order; the layers of an image count as one storage. */
export interface AttachedStorages {
  readonly mountPoints: readonly string[]
}

export function createStorageHandlers(options: Omit<StorageContext, 'hugePages' | 'watch'>): StorageHandlers {
  const hugePages = new HugePages(options.os.files)
  const dependencies = { ...options, hugePages, watch: createWatch(options.os.clock) }
  const references = new StorageReferences(dependencies)

  async function attachOne(
    group: StorageGroup,
    owner: string | undefined,
    signal: AbortSignal,
  ): Promise<'attached' | 'reused'> {
    const [storage] = group
    const { mountPoint, driver: name } = storage
    const shared = group.some((each) => each.shared)
    const driver = storageDriver(name)
    for (const layer of group) storageDriver(layer.driver)
    group.forEach(refuseNul)
    group.forEach(refuseEncryption)
    await checkMountPoint(dependencies.os.files, mountPoint, dependencies.allowedRoots)
    const attach = () =>
      isLayer(storage)
        ? mountImage(group, dependencies, signal)
        : driver.attach(storage, { ...dependencies, owner }, signal)
    const deviceOf = isDiskDriver(driver)
      ? () => driver.waitFor(storage.source, dependencies, signal)
      : undefined
    const acquisition = { mountPoint, shared, requested: group, owner, attach, deviceOf }
    const outcome = await references.acquire(acquisition, signal)
    dependencies.log.debug('storage attached', { driver: name, mountPoint, owner, outcome })
    return outcome
  }

  const groupsOf = (requested: readonly Storage[]) => groupLayers(requested.map(normalised))

  const workOf = async ({ requested, owner }: StoragePayload, data: AttachmentData) => {
    const [storage] = requested
    if (storage === undefined) return {}
    const driver = isLayer(storage) ? erofsMultiLayer : storageDriver(storage.driver)
    const request = { ...dependencies, owner: owner === '' ? undefined : owner }
    return (await driver.restore?.(storage, data, request)) ?? {}
  }

  return {
    async attach(requested, owner, signal) {
      const groups = groupsOf(requested)
      return undoOnFailure(dependencies.log, async (onFailure) => {
        for (const group of groups) {
          const [{ mountPoint }] = group
          signal.throwIfAborted()
          const outcome = await inStep('storage', mountPoint, () => attachOne(group, owner, signal))
          const newlyAttached = outcome === 'attached'
          onFailure.add(`release ${mountPoint}`, () => references.release(mountPoint, { newlyAttached }))
        }
        return { mountPoints: groups.map(([{ mountPoint }]) => mountPoint) }
      })
    },

    async release({ mountPoints }) {
      const failures: unknown[] = []
      for (const mountPoint of mountPoints.toReversed()) {
        await references.release(mountPoint).catch((error) => failures.push(error))
      }
      if (failures.length === 0) return
      throw new AgentError('INTERNAL', `release storages: ${failures.map(messageOf).join('; ')}`, {
        cause: failures[0],
      })
    },

    clear: () => references.clear(),
    list: () => references.list(),
    isUsed: (folder) => references.isUsed(folder),
    mountPointsOf: (storages) => groupsOf(storages).map(([{ mountPoint }]) => mountPoint),
    restore: (counts) => references.restore(counts, workOf),
  }
}

/** References are counted by the mount point without its final slash. */
function normalised(storage: Storage): Storage {
  return { ...storage, mountPoint: withoutFinalSlash(storage.mountPoint) }
}
