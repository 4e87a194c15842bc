import { AgentError } from '../../../base/errors.ts'
import { UndoList } from '../../../base/undo.ts'
import type { Storage } from '../../../gen/agent.ts'
import type { Files } from '../../../os/files/files.ts'
import type { StorageDriver, StorageRequest } from '../driver.ts'
import { checkMountPoint } from '../mount-point.ts'
import { mountStorage } from '../mount-storage.ts'

/** Words for agents, which the kernel would refuse. */
const WORDS = 'io.katacontainers.fs-opt.'
const WRITABLE = `${WORDS}overlay-rw`
const CREATE = 'io.katacontainers.volume.overlayfs.create_directory='

/**
 * Folders laid over each other (spec E.3.2). With the option `…overlay-rw` the uppermost is a new one in the container's
 * own folder, which goes with the storage.
 */
export const overlayfs: StorageDriver = {
  async attach(storage, request, signal) {
    const { files } = request.os
    const own = new UndoList(request.log)
    const folders = new UndoList(request.log)
    try {
      await createFolders(storage, request, folders)
      const upper = storage.options.includes(WRITABLE) ? await createUpper(files, request, own) : []
      const plain = storage.options.filter((option) => !option.startsWith(WORDS))
      const fstype = upper.length > 0 ? 'overlay' : storage.fstype
      await mountStorage({ ...storage, fstype, options: [...plain, ...upper] }, request, signal)
    } catch (error) {
      await own.run()
      await folders.run()
      throw error
    }
    return { mountPoint: storage.mountPoint, kind: 'mount', keep: false, release: () => own.run() }
  },
}

/**
 * The folders that the layers are in, where they are not there yet. They stay when the storage goes: another one may
 * have the same layers, or they are on a disk that outlives the container.
 */
async function createFolders(
  { driverOptions }: Storage,
  { os: { files }, allowedRoots }: StorageRequest,
  undo: UndoList,
): Promise<void> {
  for (const option of driverOptions) {
    if (!option.startsWith(CREATE)) continue
    const folder = option.slice(CREATE.length)
    await checkMountPoint(files, folder, allowedRoots)
    if ((await files.lstat(folder)) !== undefined) continue
    await files.makeDirectories(folder, 0o755)
    undo.add('remove layer', () => files.removeTree(folder))
    await checkMountPoint(files, folder, allowedRoots)
  }
}

async function createUpper(
  files: Files,
  { owner, bundlesRoot, allowedRoots }: StorageRequest,
  undo: UndoList,
): Promise<readonly string[]> {
  if (owner === undefined) {
    throw new AgentError(
      'INVALID_ARGUMENT',
      `storage option ${WRITABLE}: only a container can have a layer of its own`,
    )
  }
  const folder = `${bundlesRoot}/${owner}`
  await files.makeDirectories(folder, 0o755)
  const options: string[] = []
  const suffix = await freeSuffix(files, `${folder}/upper`)
  for (const name of ['upper', 'work']) {
    const path = `${folder}/${name}${suffix}`
    await checkMountPoint(files, path, allowedRoots)
    await files.makeDirectory(path, 0o755)
    undo.add(`remove ${name} folder`, () => files.removeTree(path))
    options.push(`${name}dir=${path}`)
  }
  return options
}

/** Of several writable layers of a container only the first has the plain name. */
async function freeSuffix(files: Files, path: string): Promise<string> {
  for (let suffix = '', number = 2; ; suffix = `-${number}`, number += 1) {
    if ((await files.lstat(`${path}${suffix}`)) === undefined) return suffix
  }
}
