import { abortable } from '../../../../base/abort.ts'
import { AgentError, messageOf } from '../../../../base/errors.ts'
import type { Logger } from '../../../../base/log.ts'
import { undoOnFailure } from '../../../../base/undo.ts'
import type { Storage } from '../../../../gen/agent.ts'
import type { StorageDriver, StorageRequest } from '../../driver.ts'
import { parseMountOptions } from '../../mount-options.ts'
import { isPlainAbsolute, withoutFinalSlash } from '../../mount-point.ts'
import { mountStorage } from '../../mount-storage.ts'
import { attributesForGroup } from '../../ownership.ts'
import { type CopyPlace, copyEntries } from './copy-entries.ts'
import { type Entries, type Entry, type Obstacle, readSource } from './read-source.ts'
import { watchRootOf } from './watch-roots.ts'

/**
 * A copy in memory of a small host folder or file (ConfigMap, Secret). The agent keeps it up to date, because a change
 * on the host causes no inotify event in the guest. A source that is too large or always changes is bind-mounted instead.
 */
export const watchableBind: StorageDriver = {
  async attach(given, request, signal) {
    const storage = { ...given, source: withoutFinalSlash(given.source) }
    const { mountPoint } = storage
    const { os, log, watch } = request
    const root = watchRootOf(mountPoint, request.allowedRoots)
    parseMountOptions(storage.options)
    const kind = await abortable(kindOfSource(storage, request), signal)
    return undoOnFailure(log, async (onFailure) => {
      const { staging, release } = await watch.roots.acquire(root, request, signal)
      onFailure.add('release watch root', release)
      await os.files.removeTree(mountPoint)
      if (kind === 'file') await os.files.write(mountPoint, '', { mode: 0o600 })
      else await os.files.makeDirectory(mountPoint, 0o755)
      onFailure.add('remove copy', () => os.files.removeTree(mountPoint))
      const watched = watchedStorage(storage, staging, request)
      const outcome = await watched.update(signal)
      signal.throwIfAborted()
      const attachment = { mountPoint, kind: 'copy', keep: false, onRemove: release } as const
      if (outcome === 'copied' || outcome === 'missing') {
        const undo = { staging, followed: 'yes' }
        return { ...attachment, undo, stop: follow(watched, storage, request) }
      }
      await mountSource(storage, request, outcome, signal)
      return { ...attachment, undo: { staging } }
    })
  },

  async restore(given, { undo: { staging, followed } }, request) {
    const storage = { ...given, source: withoutFinalSlash(given.source) }
    const root = watchRootOf(storage.mountPoint, request.allowedRoots)
    if (staging === undefined) return { onRemove: () => removeBegun(storage, root, request) }
    const { release } = await request.watch.roots.restore(root, staging, request)
    if (followed === undefined) return { onRemove: release }
    // All entries are copied once more, because the state of the copy is not known.
    return { onRemove: release, stop: follow(watchedStorage(storage, staging, request), storage, request) }
  },
}

/** Cleans up after an agent that died while it attached the storage. */
async function removeBegun({ mountPoint }: Storage, root: string, request: StorageRequest): Promise<void> {
  await request.os.files.removeTree(mountPoint)
  await request.watch.roots.removeUnused(root, request)
}

/** A missing source is expected to appear as a folder. */
async function kindOfSource(
  { source, mountPoint }: Storage,
  { os }: StorageRequest,
): Promise<'file' | 'directory'> {
  if (!isPlainAbsolute(source)) {
    const text = `storage ${mountPoint}: source "${source}": not a normalised absolute path`
    throw new AgentError('INVALID_ARGUMENT', text)
  }
  const kind = (await os.files.lstat(source))?.kind ?? 'directory'
  if (kind === 'directory' || kind === 'file') return kind
  throw new AgentError(
    'INVALID_ARGUMENT',
    `storage ${mountPoint}: source ${source}: is a ${kind}, want a directory or file`,
  )
}

function watchedStorage(storage: Storage, staging: string, { os, log }: StorageRequest): WatchedStorage {
  const { source, mountPoint: path, fsGroup, options } = storage
  const readOnly = parseMountOptions(options).flags.includes('ro')
  const place: CopyPlace = {
    files: os.files,
    path,
    staging,
    attributes: (status) =>
      fsGroup === undefined ? status : attributesForGroup(status, fsGroup.groupId, readOnly),
  }
  return new WatchedStorage(source, place, log)
}

/** Keeps the copy up to date until the returned function is called. */
function follow(watched: WatchedStorage, storage: Storage, request: StorageRequest): () => Promise<void> {
  const stopping = new AbortController()
  const removeTask = request.watch.pollLoop.add(async () => {
    try {
      const outcome = await watched.update(stopping.signal)
      if (outcome !== 'too large') return 'again'
      await mountSource(storage, request, outcome, stopping.signal)
      return 'done'
    } catch (error) {
      if (!stopping.signal.aborted) watched.warnOnce(messageOf(error))
      return 'again'
    }
  })
  return () => {
    stopping.abort()
    return removeTask()
  }
}

/** A running container keeps the copy that it has mounted. */
async function mountSource(
  storage: Storage,
  request: StorageRequest,
  reason: string,
  signal: AbortSignal,
): Promise<void> {
  const isBind = parseMountOptions(storage.options).flags.includes('bind')
  const options = isBind ? storage.options : ['bind', ...storage.options]
  await mountStorage({ ...storage, fstype: 'bind', options }, request, signal)
  request.log.info('watched storage mounted instead of copied', { mountPoint: storage.mountPoint, reason })
}

class WatchedStorage {
  readonly #source: string
  readonly #place: CopyPlace
  readonly #log: Logger
  readonly #copied = new Map<string, Entry>()
  /** Not logged again every two seconds. */
  #lastWarning: string | undefined

  constructor(source: string, place: CopyPlace, log: Logger) {
    this.#source = source
    this.#place = place
    this.#log = log
  }

  /**
   * Leaves the copy unchanged while the source is missing, changing or unreadable. A read may hang when the host is
   * gone; `signal` then ends the wait, and nothing is written. Throws the kernel's error when the copy cannot be written.
   */
  async update(signal: AbortSignal): Promise<'copied' | Obstacle | 'unreadable'> {
    const source = await abortable(this.#read(), signal)
    if (typeof source === 'string') return source
    await copyEntries(this.#place, source, this.#copied)
    this.#lastWarning = undefined
    return 'copied'
  }

  warnOnce(warning: string): void {
    if (warning === this.#lastWarning) return
    this.#lastWarning = warning
    this.#log.warn('watched storage not up to date', { mountPoint: this.#place.path, error: warning })
  }

  async #read(): Promise<Entries | Obstacle | 'unreadable'> {
    try {
      return await readSource(this.#place.files, this.#source, this.#copied)
    } catch (error) {
      this.warnOnce(messageOf(error))
      return 'unreadable'
    }
  }
}
