import { errnoOf } from '../../../base/errors.ts'
import type { UndoList } from '../../../base/undo.ts'
import type { FileAttributes, Folder } from '../../../os/files/folder.ts'
import type { Copy } from './copy-request.ts'

/** The resources of an unfinished copy. */
export interface CopyWork {
  readonly onFailure: UndoList
  /** Closes all open folders and files; runs in every case, after `onFailure`. */
  readonly opened: UndoList
  /** The number of parents that were made, which are the last ones. */
  parentsMade: number
}

/**
 * Opens the parent folder, after making missing parents. It walks open folders and follows no symbolic link, so a
 * container cannot redirect the copy by moving a folder.
 */
export async function openParent(root: Folder, copy: Copy, work: CopyWork): Promise<Folder> {
  if (copy.parents.length === 0) return root
  const existing = await unlessMissing(root.openBelow(copy.parents.join('/')))
  if (existing !== undefined) return keepOpen(existing, work)
  return keepOpen(await makeParents(root, copy, work), work)
}

/** Only the last parent stays open, because there may be two thousand. */
async function makeParents(root: Folder, copy: Copy, work: CopyWork): Promise<Folder> {
  let folder = root
  for (const [index, name] of copy.parents.entries()) {
    const above = folder
    try {
      folder = (await unlessMissing(above.open(name))) ?? (await makeParent(root, above, copy, index, work))
    } finally {
      if (above !== root) await above.close()
    }
  }
  return folder
}

async function makeParent(
  root: Folder,
  folder: Folder,
  { parents, parentMode, attributes }: Copy,
  index: number,
  work: CopyWork,
): Promise<Folder> {
  const name = parents[index] ?? ''
  await folder.makeFolder(name, 0o700)
  madeParent(root, parents, index, work)
  const made = await folder.open(name)
  const owner = index === parents.length - 1 ? attributes : { uid: 0, gid: 0 }
  try {
    await made.setAttributes({ uid: owner.uid, gid: owner.gid, mode: parentMode })
  } catch (error) {
    await made.close()
    throw error
  }
  return made
}

function madeParent(root: Folder, parents: readonly string[], index: number, work: CopyWork): void {
  work.parentsMade += 1
  work.onFailure.add('remove parent', () => removeEmpty(root, parents.slice(0, index), parents[index] ?? ''))
}

/** Opens the parent of an entry whose copy the previous agent began, after it made the last `made` parents. */
export async function reopenParent(
  root: Folder,
  parents: readonly string[],
  made: number,
  work: CopyWork,
): Promise<Folder> {
  for (let index = parents.length - made; index < parents.length; index++)
    madeParent(root, parents, index, work)
  return parents.length === 0 ? root : keepOpen(await root.openBelow(parents.join('/')), work)
}

async function removeEmpty(root: Folder, parents: readonly string[], name: string): Promise<void> {
  const folder = parents.length === 0 ? root : await root.openBelow(parents.join('/'))
  try {
    await folder.removeFolder(name)
  } catch (error) {
    if (errnoOf(error) !== 'ENOENT' && errnoOf(error) !== 'ENOTEMPTY') throw error
  } finally {
    if (folder !== root) await folder.close()
  }
}

/** Updates the attributes of an existing directory; replaces anything else. */
export async function copyDirectory(folder: Folder, copy: Copy, { onFailure }: CopyWork): Promise<void> {
  const { name, temporaryName, attributes } = copy
  const isKept = (await folder.status(name))?.kind === 'directory'
  if (isKept) return setFolderAttributes(folder, name, attributes)
  await folder.remove(temporaryName)
  await folder.makeFolder(temporaryName, 0o700)
  onFailure.add('remove directory', () => folder.remove(temporaryName))
  await setFolderAttributes(folder, temporaryName, attributes)
  // rename(2) does not replace a file with a directory.
  await folder.remove(name)
  await folder.move(temporaryName, folder, name)
}

async function setFolderAttributes(folder: Folder, name: string, attributes: FileAttributes): Promise<void> {
  const directory = await folder.open(name)
  try {
    await directory.setAttributes(attributes)
  } finally {
    await directory.close()
  }
}

export async function copyLink(
  folder: Folder,
  copy: Copy,
  target: Uint8Array,
  { onFailure }: CopyWork,
): Promise<void> {
  const { temporaryName, attributes } = copy
  await folder.remove(temporaryName)
  await folder.symlink(target, temporaryName)
  onFailure.add('remove link', () => folder.remove(temporaryName))
  await folder.setOwner(temporaryName, attributes.uid, attributes.gid)
  await publish(folder, copy)
}

/** Renames the complete entry; it replaces a file or link of that name atomically. */
export async function publish(folder: Folder, { name, temporaryName }: Copy): Promise<void> {
  const isDirectory = (await folder.status(name))?.kind === 'directory'
  if (isDirectory) await folder.remove(name)
  await folder.move(temporaryName, folder, name)
}

function keepOpen(folder: Folder, { opened }: CopyWork): Folder {
  opened.add('close folder', () => folder.close())
  return folder
}

async function unlessMissing(opening: Promise<Folder>): Promise<Folder | undefined> {
  try {
    return await opening
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return undefined
    throw error
  }
}
