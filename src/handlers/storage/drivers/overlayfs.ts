import { AgentError } from '../../../base/errors.ts'
import { UndoList } from '../../../base/undo.ts'
import type { Storage } from '../../../gen/agent.ts'
import type { Files } from '../../../os/files/files.ts'
import type { StorageDriver, StorageRequest } from '../driver.ts'
import { checkMountPoint } from '../mount-point.ts'
import { mountStorage } from '../mount-storage.ts'

/** The prefix of options for the agent, which the kernel would refuse. */
const AGENT_PREFIX = 'io.katacontainers.fs-opt.'
const WRITABLE = `${AGENT_PREFIX}overlay-rw`
const CREATE = 'io.katacontainers.volume.overlayfs.create_directory='

/**
 * An overlay of folders (spec E.3.2). With the option `…overlay-rw` the upper layer is a new folder in the container's
 * own folder, which is removed with the storage.
 */
export const overlayfs: StorageDriver = {
  async attach(storage, request, signal) {
    const { files } = request.os
    const onRemove = new UndoList(request.log)
    const onFailure = new UndoList(request.log)
    try {
      await createFolders(storage, request, onFailure)
      const upper = storage.options.includes(WRITABLE) ? await createUpper(files, request, onRemove) : []
      const plain = storage.options.filter((option) => !option.startsWith(AGENT_PREFIX))
      const fstype = upper.length > 0 ? 'overlay' : storage.fstype
      await mountStorage({ ...storage, fstype, options: [...plain, ...upper] }, request, signal)
    } catch (error) {
      await onRemove.run()
      await onFailure.run()
      throw error
    }
    return { mountPoint: storage.mountPoint, kind: 'mount', keep: false, onRemove: () => onRemove.run() }
  },
}

/**
 * Creates the missing folders that the layers are in. They stay when the storage is removed: another storage may use the
 * same layers, or they are on a disk that outlives the container.
 */
async function createFolders(
  { driverOptions }: Storage,
  { os: { files }, allowedRoots }: StorageRequest,
  onFailure: UndoList,
): Promise<void> {
  for (const option of driverOptions) {
    if (!option.startsWith(CREATE)) continue
    const folder = option.slice(CREATE.length)
    await checkMountPoint(files, folder, allowedRoots)
    if ((await files.lstat(folder)) !== undefined) continue
    await files.makeDirectories(folder, 0o755)
    onFailure.add('remove layer', () => files.removeTree(folder))
    await checkMountPoint(files, folder, allowedRoots)
  }
}

async function createUpper(
  files: Files,
  { owner, bundlesRoot, allowedRoots }: StorageRequest,
  onFailure: UndoList,
): Promise<readonly string[]> {
  if (owner === undefined) {
    throw new AgentError(
      'INVALID_ARGUMENT',
      `storage option ${WRITABLE}: not valid for the sandbox, want a container's storage`,
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
    onFailure.add(`remove ${name} folder`, () => files.removeTree(path))
    options.push(`${name}dir=${path}`)
  }
  return options
}

/** The first suffix whose folder is free; a container's first writable layer has none. */
async function freeSuffix(files: Files, path: string): Promise<string> {
  for (let suffix = '', number = 2; ; suffix = `-${number}`, number += 1) {
    if ((await files.lstat(`${path}${suffix}`)) === undefined) return suffix
  }
}
