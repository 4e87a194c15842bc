import { neverAborted } from '../../../../base/abort.ts'
import { AgentError } from '../../../../base/errors.ts'
import { SerialQueue } from '../../../../base/serial-queue.ts'
import { UndoList, undoOnFailure } from '../../../../base/undo.ts'
import type { Clock } from '../../../../os/clock.ts'
import { isMountPoint } from '../../../../os/files/mounts.ts'
import { checkMountPoint, userFolderOf } from '../../mount-point.ts'
import { type MountContext, mountStorage } from '../../mount-storage.ts'
import { PollLoop } from './poll-loop.ts'

/** The folders below a sandbox's root that hold watched storages, one for each host layout. */
const WATCH_FOLDERS = ['shared/containers/watchable', 'shared/containers/passthrough/watchable']
/** The prefix of the agent's own folders, which no storage's name may have. */
const RESERVED_PREFIX = '..'

/** Throws INVALID_ARGUMENT for a mount point outside the watch roots. */
export function watchRootOf(mountPoint: string, allowedRoots: readonly string[]): string {
  const roots = allowedRoots.flatMap((root) => WATCH_FOLDERS.map((place) => `${root}/${place}`))
  const slash = mountPoint.lastIndexOf('/')
  const userFolder = userFolderOf(mountPoint)
  const root = roots.map((each) => `${userFolder}${each}`).find((each) => each === mountPoint.slice(0, slash))
  if (root === undefined) {
    const text = `mount point "${mountPoint}": not in ${roots.join(' or ')}`
    throw new AgentError('INVALID_ARGUMENT', text)
  }
  if (mountPoint.startsWith(RESERVED_PREFIX, slash + 1)) {
    const text = `mount point "${mountPoint}": names that begin with ${RESERVED_PREFIX} are reserved`
    throw new AgentError('INVALID_ARGUMENT', text)
  }
  return root
}

interface Root {
  references: number
  /** Unmounts its tmpfs and removes its folder. */
  readonly onRemove: UndoList
}

export interface WatchRootReference {
  /** An empty folder in it for this storage alone, which no container sees. */
  readonly staging: string
  /** Never throws. */
  readonly release: () => Promise<void>
}

/** The watch roots, which hold the copies of watched storages. Each is one tmpfs with counted references. */
export class WatchRoots {
  readonly #roots = new Map<string, Root>()
  #lastStaging = 0
  readonly #changes = new SerialQueue()

  /** The first reference mounts the tmpfs. Throws what mounting throws or the abort reason, after undoing all steps. */
  async acquire(path: string, dependencies: MountContext, signal: AbortSignal): Promise<WatchRootReference> {
    const { os, log } = dependencies
    return undoOnFailure(log, async (onRelease) => {
      await this.#changes.run(() => this.#acquire(path, dependencies, signal), neverAborted)
      onRelease.add('release watch root', () => this.#changes.run(() => this.#release(path), neverAborted))
      this.#lastStaging += 1
      const staging = `${path}/${RESERVED_PREFIX}staging-${this.#lastStaging}`
      // The previous agent may have died before it recorded its storage.
      await os.files.removeTree(staging)
      await os.files.makeDirectory(staging, 0o700)
      onRelease.add('remove staging folder', () => os.files.removeTree(staging))
      return { staging, release: () => onRelease.run() }
    })
  }

  /** Restores the previous agent's reference with the folder `staging`, and empties that folder. */
  async restore(path: string, staging: string, { os, log }: MountContext): Promise<WatchRootReference> {
    // The previous agent had released the reference when it died.
    if (!(await isMountPoint(os, path))) return { staging, release: async () => {} }
    const root = this.#roots.get(path) ?? { references: 0, onRemove: undoOfRoot(path, { os, log }) }
    root.references += 1
    this.#roots.set(path, root)
    const number = Number(staging.slice(staging.lastIndexOf('-') + 1))
    this.#lastStaging = Math.max(this.#lastStaging, number)
    await os.files.removeTree(staging)
    await os.files.makeDirectory(staging, 0o700)
    const onRelease = new UndoList(log)
    onRelease.add('release watch root', () => this.#changes.run(() => this.#release(path), neverAborted))
    onRelease.add('remove staging folder', () => os.files.removeTree(staging))
    return { staging, release: () => onRelease.run() }
  }

  /** Unmounts a watch root that the previous agent mounted for a storage that it did not attach. */
  async removeUnused(path: string, dependencies: Pick<MountContext, 'os' | 'log'>): Promise<void> {
    const remove = async () => {
      if (this.#roots.has(path) || !(await isMountPoint(dependencies.os, path))) return
      await undoOfRoot(path, dependencies).run()
    }
    await this.#changes.run(remove, neverAborted)
  }

  async #acquire(path: string, dependencies: MountContext, signal: AbortSignal): Promise<void> {
    const root = this.#roots.get(path) ?? {
      references: 0,
      onRemove: await mountRoot(path, dependencies, signal),
    }
    root.references += 1
    this.#roots.set(path, root)
  }

  async #release(path: string): Promise<void> {
    const root = this.#roots.get(path)
    if (root === undefined) return
    root.references -= 1
    if (root.references > 0) return
    this.#roots.delete(path)
    await root.onRemove.run()
  }
}

/** The undo of {@link mountRoot} for a root that the previous agent mounted. */
function undoOfRoot(path: string, { os, log }: Pick<MountContext, 'os' | 'log'>): UndoList {
  const onRemove = new UndoList(log)
  onRemove.add('remove watch root', () => os.files.removeDirectory(path))
  onRemove.add('unmount watch root', () => os.mounts.unmount(path, { detach: true }))
  return onRemove
}

async function mountRoot(path: string, dependencies: MountContext, signal: AbortSignal): Promise<UndoList> {
  const { os, log, allowedRoots } = dependencies
  // The previous agent mounted it and died before it recorded its storage.
  if (await isMountPoint(os, path)) return undoOfRoot(path, dependencies)
  return undoOnFailure(log, async (onRemove) => {
    if ((await os.files.lstat(path)) === undefined) {
      await os.files.makeDirectories(path, 0o755)
      onRemove.add('remove watch root', () => os.files.removeDirectory(path))
    }
    // Another process may have created it as a symbolic link.
    await checkMountPoint(os.files, path, allowedRoots)
    const options = ['nosuid', 'nodev', 'mode=755']
    const request = { source: 'tmpfs', fstype: 'tmpfs', options, mountPoint: path, fsGroup: undefined }
    await mountStorage(request, dependencies, signal)
    onRemove.add('unmount watch root', () => os.mounts.unmount(path, { detach: true }))
    return onRemove
  })
}

export interface Watch {
  readonly roots: WatchRoots
  readonly pollLoop: PollLoop
}

export function createWatch(clock: Clock): Watch {
  return { roots: new WatchRoots(), pollLoop: new PollLoop(clock) }
}
