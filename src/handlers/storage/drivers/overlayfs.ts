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

/** An overlay of folders. `…overlay-rw` adds an upper layer in the container's folder, removed with the storage. */
export const overlayfs: StorageDriver = {
  async attach(storage, request, signal) {
    const { files } = request.os
    const onRemove = new UndoList(request.log)
    const onFailure = new UndoList(request.log)
    const undo: Record<string, string> = {}
    try {
      await createFolders(storage, request, onFailure)
      const folders = storage.options.includes(WRITABLE)
        ? await createUpper(files, request, onRemove)
        : undefined
      const upper = folders === undefined ? [] : [`upperdir=${folders.upper}`, `workdir=${folders.work}`]
      if (folders !== undefined) Object.assign(undo, folders)
      const plain = storage.options.filter((option) => !option.startsWith(AGENT_PREFIX))
      const fstype = upper.length > 0 ? 'overlay' : storage.fstype
      await mountStorage({ ...storage, fstype, options: [...plain, ...upper] }, request, signal)
    } catch (error) {
      await onRemove.run()
      await onFailure.run()
      throw error
    }
    const { mountPoint } = storage
    return { mountPoint, kind: 'mount', keep: false, undo, onRemove: () => onRemove.run() }
  },

  async restore(_storage, { undo }, { os: { files }, log }) {
    const onRemove = new UndoList(log)
    for (const folder of Object.values(undo)) addRemoval(onRemove, files, folder)
    return { onRemove: () => onRemove.run() }
  },
}

function addRemoval(onRemove: UndoList, files: Files, folder: string): void {
  onRemove.add(`remove ${folder}`, () => files.removeTree(folder))
}

/** Created layers stay after the storage: another storage may use them, or their disk outlives the container. */
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
  onRemove: UndoList,
): Promise<{ readonly upper: string; readonly work: string }> {
  if (owner === undefined) {
    throw new AgentError(
      'INVALID_ARGUMENT',
      `storage option ${WRITABLE}: not valid for the sandbox, want a container's storage`,
    )
  }
  const folder = `${bundlesRoot}/${owner}`
  await files.makeDirectories(folder, 0o755)
  const suffix = await freeSuffix(files, `${folder}/upper`)
  const folders = { upper: `${folder}/upper${suffix}`, work: `${folder}/work${suffix}` }
  for (const path of Object.values(folders)) {
    await checkMountPoint(files, path, allowedRoots)
    await files.makeDirectory(path, 0o755)
    addRemoval(onRemove, files, path)
  }
  return folders
}

/** A container's first writable layer has no suffix. */
async function freeSuffix(files: Files, path: string): Promise<string> {
  for (let suffix = '', number = 2; ; suffix = `-${number}`, number += 1) {
    if ((await files.lstat(`${path}${suffix}`)) === undefined) return suffix
  }
}
