import { abortable } from '../../../../base/abort.ts'
import { AgentError, messageOf } from '../../../../base/errors.ts'
import { UndoList } from '../../../../base/undo.ts'
import type { Storage } from '../../../../gen/agent.ts'
import type { StorageDriver, StorageRequest } from '../../driver.ts'
import { parseMountOptions } from '../../mount-options.ts'
import { isPlainAbsolute, withoutFinalSlash } from '../../mount-point.ts'
import { mountStorage } from '../../mount-storage.ts'
import { givenToGroup } from '../../ownership.ts'
import type { CopyPlace } from './copy-entries.ts'
import { watchRootOf } from './watch-roots.ts'
import { WatchedStorage } from './watched-storage.ts'

/**
 * A small folder or file of the host, ConfigMaps and Secrets of Kubernetes above all, as a copy in memory that follows it
 * (spec E.3.5): a change on the host itself would cause no inotify event in the guest. What cannot be copied is mounted.
 */
export const watchableBind: StorageDriver = {
  async attach(given, request, signal) {
    const storage = { ...given, source: withoutFinalSlash(given.source) }
    const { mountPoint } = storage
    const { os, log, watch } = request
    const root = watchRootOf(mountPoint, request.allowedRoots)
    parseMountOptions(storage.options)
    const kind = await abortable(kindOfSource(storage, request), signal)
    const undo = new UndoList(log)
    try {
      const { staging, release } = await watch.roots.acquire(root, request, signal)
      undo.add('give up memory', release)
      await os.files.removeTree(mountPoint)
      if (kind === 'file') await os.files.write(mountPoint, '', { mode: 0o600 })
      else await os.files.makeDirectory(mountPoint, 0o755)
      undo.add('remove copy', () => os.files.removeTree(mountPoint))
      const watched = watchedStorage(storage, staging, request)
      const outcome = await watched.update(signal)
      signal.throwIfAborted()
      const made = { mountPoint, kind: 'copy', keep: false, release: release } as const
      if (outcome === 'copied' || outcome === 'missing') {
        return { ...made, end: follow(watched, storage, request) }
      }
      await mountSource(storage, request, outcome, signal)
      return made
    } catch (error) {
      await undo.run()
      throw error
    }
  },
}

/** A source that is not there may come, as a folder. */
async function kindOfSource(
  { source, mountPoint }: Storage,
  { os }: StorageRequest,
): Promise<'file' | 'directory'> {
  if (!isPlainAbsolute(source)) {
    const text = `storage ${mountPoint}: source '${source}' is not an absolute path without . and ..`
    throw new AgentError('INVALID_ARGUMENT', text)
  }
  const kind = (await os.files.lstat(source))?.kind ?? 'directory'
  if (kind === 'directory' || kind === 'file') return kind
  throw new AgentError('INVALID_ARGUMENT', `storage ${mountPoint}: source ${source} is a ${kind}`)
}

function watchedStorage(storage: Storage, staging: string, { os, log }: StorageRequest): WatchedStorage {
  const { source, mountPoint: path, fsGroup, options } = storage
  const readOnly = parseMountOptions(options).flags.includes('ro')
  const place: CopyPlace = {
    files: os.files,
    path,
    staging,
    attributes: (status) =>
      fsGroup === undefined ? status : givenToGroup(status, fsGroup.groupId, readOnly),
  }
  return new WatchedStorage(source, place, log)
}

/** Begins to follow the source, and returns how to end that. */
function follow(watched: WatchedStorage, storage: Storage, request: StorageRequest): () => Promise<void> {
  const ending = new AbortController()
  const leave = request.watch.pollLoop.join(async () => {
    try {
      const outcome = await watched.update(ending.signal)
      if (outcome !== 'too large') return 'again'
      await mountSource(storage, request, outcome, ending.signal)
      return 'done'
    } catch (error) {
      if (!ending.signal.aborted) watched.complain(messageOf(error))
      return 'again'
    }
  })
  return () => {
    ending.abort()
    return leave()
  }
}

/** Mounts the source over its copy, for good. A container that has the copy mounted keeps it as it is. */
async function mountSource(
  storage: Storage,
  request: StorageRequest,
  reason: string,
  signal: AbortSignal,
): Promise<void> {
  const isBind = parseMountOptions(storage.options).flags.includes('bind')
  const options = isBind ? storage.options : ['bind', ...storage.options]
  await mountStorage({ ...storage, fstype: 'bind', options }, request, signal)
  request.log.info('watched storage is mounted itself', { mountPoint: storage.mountPoint, reason })
}
