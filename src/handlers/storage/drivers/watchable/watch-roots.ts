import { neverAborted } from '../../../../base/abort.ts'
import { AgentError } from '../../../../base/errors.ts'
import { SerialQueue } from '../../../../base/serial-queue.ts'
import { UndoList } from '../../../../base/undo.ts'
import { checkMountPoint, userFolderOf } from '../../mount-point.ts'
import { type MountDependencies, mountStorage } from '../../mount-storage.ts'

/** Below the root of a sandbox: one for each of the layouts that hosts have (spec E.3.5, E.5). */
const PLACES = ['shared/containers/watchable', 'shared/containers/passthrough/watchable']
/** What names begin with that no storage may have. */
const OWN = '..'

/** The folder that a watched storage has to be in. Throws INVALID_ARGUMENT for other mount points. */
export function watchRootOf(mountPoint: string, allowedRoots: readonly string[]): string {
  const roots = allowedRoots.flatMap((root) => PLACES.map((place) => `${root}/${place}`))
  const slash = mountPoint.lastIndexOf('/')
  const userFolder = userFolderOf(mountPoint)
  const root = roots.map((each) => `${userFolder}${each}`).find((each) => each === mountPoint.slice(0, slash))
  if (root === undefined) {
    const text = `mount point '${mountPoint}' refused: it is not in ${roots.join(' or ')}`
    throw new AgentError('INVALID_ARGUMENT', text)
  }
  if (mountPoint.startsWith(OWN, slash + 1)) {
    const text = `mount point '${mountPoint}' refused: names that begin with ${OWN} are the agent's own`
    throw new AgentError('INVALID_ARGUMENT', text)
  }
  return root
}

interface Root {
  users: number
  /** Takes the memory away again. */
  readonly made: UndoList
}

/** What a storage has of the memory that copies are kept in. */
export interface RootUse {
  /** An empty folder of its own there, which no container sees. */
  readonly staging: string
  /** Ends the use. Never throws. */
  readonly release: () => Promise<void>
}

/** The memory that copies are kept in: one file system for all in a folder, from the first storage until the last. */
export class WatchRoots {
  readonly #roots = new Map<string, Root>()
  #lastStaging = 0
  /** Mounting and unmounting wait for each other. */
  readonly #changes = new SerialQueue()

  /** Mounts it if need be. Throws what mounting throws, or what `signal` is aborted with; nothing is left then. */
  async acquire(path: string, dependencies: MountDependencies, signal: AbortSignal): Promise<RootUse> {
    const { os, log } = dependencies
    const undo = new UndoList(log)
    try {
      await this.#changes.run(() => this.#acquire(path, dependencies, signal), neverAborted)
      undo.add('give up memory of watched storages', () =>
        this.#changes.run(() => this.#release(path), neverAborted),
      )
      this.#lastStaging += 1
      const staging = `${path}/${OWN}staging-${this.#lastStaging}`
      await os.files.makeDirectory(staging, 0o700)
      undo.add('remove staging folder', () => os.files.removeTree(staging))
      return { staging, release: () => undo.run() }
    } catch (error) {
      await undo.run()
      throw error
    }
  }

  async #acquire(path: string, dependencies: MountDependencies, signal: AbortSignal): Promise<void> {
    const root = this.#roots.get(path) ?? { users: 0, made: await mountRoot(path, dependencies, signal) }
    root.users += 1
    this.#roots.set(path, root)
  }

  async #release(path: string): Promise<void> {
    const root = this.#roots.get(path)
    if (root === undefined) return
    root.users -= 1
    if (root.users > 0) return
    this.#roots.delete(path)
    await root.made.run()
  }
}

async function mountRoot(
  path: string,
  dependencies: MountDependencies,
  signal: AbortSignal,
): Promise<UndoList> {
  const { os, log, allowedRoots } = dependencies
  const made = new UndoList(log)
  try {
    if ((await os.files.lstat(path)) === undefined) {
      await os.files.makeDirectories(path, 0o755)
      made.add('remove folder of watched storages', () => os.files.removeDirectory(path))
    }
    // Whoever made it may have been faster, with a link.
    await checkMountPoint(os.files, path, allowedRoots)
    const options = ['nosuid', 'nodev', 'mode=755']
    const request = { source: 'tmpfs', fstype: 'tmpfs', options, mountPoint: path, fsGroup: undefined }
    await mountStorage(request, dependencies, signal)
    made.add('unmount memory of watched storages', () => os.mounts.unmount(path))
    return made
  } catch (error) {
    await made.run()
    throw error
  }
}
