import { basename, dirname } from 'node:path/posix'
import { AgentError, errnoOf } from '../../../../base/errors.ts'
import { isWithin } from '../../../../base/paths.ts'
import type { FileStatus } from '../../../../os/files/file-status.ts'
import type { Files } from '../../../../os/files/files.ts'
import type { FileAttributes, Folder } from '../../../../os/files/folder.ts'
import { type Entries, type Entry, sameEntry, VERSION_LINK } from './read-source.ts'

/** Where a copy is kept, and how. */
export interface CopyPlace {
  readonly files: Files
  /** The copy itself, a folder or a file that is there. */
  readonly path: string
  /** An empty folder on the same file system that nobody else sees. */
  readonly staging: string
  /** What a copy is like, given its source. */
  readonly attributes: (status: FileStatus) => FileAttributes
}

/** One copying: from `copied`, which follows what is done, to `wanted`. */
interface Copying {
  readonly place: CopyPlace
  readonly wanted: Entries
  readonly copied: Map<string, Entry>
  readonly top: Folder
  readonly staging: Folder
}

/**
 * Makes a copy as its source is. Whatever is put there is made whole elsewhere and moved into place by rename(2): first
 * folders and files, then the link between versions, then other links. What is gone goes last; and the version that
 * was just left at the next call only, for somebody may be in the middle of it.
 *
 * The copy may be in the hands of a container that changes it: no link in it is ever followed. Throws what the kernel
 * says, and the next call goes on from there.
 */
export async function copyEntries(
  place: CopyPlace,
  wanted: Entries,
  copied: Map<string, Entry>,
): Promise<void> {
  const source = wanted.get('')
  if (source?.status.kind === 'file') return rewriteFile(place, source, copied)
  const top = await place.files.openFolder(place.path)
  try {
    const staging = await place.files.openFolder(place.staging)
    try {
      await copyFolder({ place, wanted, copied, top, staging })
    } finally {
      await staging.close()
    }
  } finally {
    await top.close()
  }
}

/** A container has mounted the file itself, so it has to stay the same one. */
async function rewriteFile(place: CopyPlace, entry: Entry, copied: Map<string, Entry>): Promise<void> {
  if (sameEntry(copied.get(''), entry)) return
  const above = await place.files.openFolder(dirname(place.path))
  try {
    await above.rewrite(basename(place.path), contentOf(entry), fileLike(place, entry))
  } finally {
    await above.close()
  }
  copied.set('', withoutContent(entry))
}

async function copyFolder(copying: Copying): Promise<void> {
  const { wanted, copied, staging } = copying
  // Of a call that failed.
  for (const left of await staging.names(Number.POSITIVE_INFINITY)) await staging.remove(left)
  for (const [path, entry] of [...copied])
    if (isOtherKind(entry, wanted.get(path))) await removeCopy(copying, path)
  for (const [path, entry] of wanted) {
    // What is in a new folder has come with it.
    if (isLink(entry) || sameEntry(copied.get(path), entry)) continue
    const isThere = path === '' || copied.has(path)
    if (isThere && entry.status.kind === 'directory') await changeFolder(copying, path, entry)
    else await put(copying, path, entry)
  }
  const links = [...wanted].filter(([path, entry]) => isLink(entry) && !sameEntry(copied.get(path), entry))
  const switching = links.filter(([path]) => path === VERSION_LINK)
  for (const [path, entry] of switching) await put(copying, path, entry)
  for (const [path, entry] of links) if (path !== VERSION_LINK) await put(copying, path, entry)
  await removeGone(copying, switching.length > 0)
}

async function removeGone(copying: Copying, isSwitched: boolean): Promise<void> {
  const { wanted, copied } = copying
  for (const path of [...copied.keys()]) {
    const [top = path] = path.split('/')
    const mayBeInUse = isSwitched && !wanted.has(top) && copied.get(top)?.status.kind === 'directory'
    if (!wanted.has(path) && !mayBeInUse) await removeCopy(copying, path)
  }
}

/** Makes an entry in the staging folder, with all that is in it, and moves it into its place. */
async function put(copying: Copying, path: string, entry: Entry): Promise<void> {
  const { top, staging, copied, wanted } = copying
  const name = basename(path)
  await make(copying, staging, path)
  await atFolderOf(top, path, async (folder) => {
    // It is not ours, and rename would not replace it.
    if (entry.status.kind === 'directory') await folder.remove(name)
    await staging.move(name, folder)
  })
  for (const [each, made] of wanted) {
    if (isWithin(each, path)) copied.set(each, withoutContent(made))
  }
}

async function make(copying: Copying, folder: Folder, path: string): Promise<void> {
  const { place, wanted } = copying
  const name = basename(path)
  const entry = wanted.get(path)
  if (entry === undefined) return
  if (entry.target !== undefined) return folder.symlink(entry.target, name)
  if (entry.status.kind === 'file') return folder.create(name, contentOf(entry), fileLike(place, entry))
  await folder.makeFolder(name, 0o700)
  const inner = await folder.open(name)
  try {
    for (const each of wanted.keys()) {
      if (each !== '' && dirname(each) === path) await make(copying, inner, each)
    }
    await inner.setAttributes(place.attributes(entry.status))
  } finally {
    await inner.close()
  }
}

async function changeFolder({ top, place, copied }: Copying, path: string, entry: Entry): Promise<void> {
  // A path below the folder, of which only the folder counts.
  const within = path === '' ? '.' : `${path}/.`
  await atFolderOf(top, within, (folder) => folder.setAttributes(place.attributes(entry.status)))
  copied.set(path, entry)
}

/** What is in it goes with it. */
async function removeCopy({ top, copied }: Copying, path: string): Promise<void> {
  if (!copied.has(path)) return
  try {
    await atFolderOf(top, path, (folder) => folder.remove(basename(path)))
  } catch (error) {
    // The container has removed a folder above it.
    if (errnoOf(error) !== 'ENOENT') throw error
  }
  for (const each of [...copied.keys()]) if (isWithin(each, path)) copied.delete(each)
}

/** Opens the folder that an entry of a copy is in, one folder below the other. */
async function atFolderOf(top: Folder, path: string, use: (folder: Folder) => Promise<void>): Promise<void> {
  const slash = path.indexOf('/')
  if (slash === -1) return use(top)
  const next = await top.open(path.slice(0, slash))
  try {
    await atFolderOf(next, path.slice(slash + 1), use)
  } finally {
    await next.close()
  }
}

function isLink({ status }: Entry): boolean {
  return status.kind === 'symlink'
}

/** A folder in place of something else, or the other way round: anything else rename(2) replaces. */
function isOtherKind(before: Entry, after: Entry | undefined): boolean {
  return after !== undefined && (before.status.kind === 'directory') !== (after.status.kind === 'directory')
}

function fileLike({ attributes }: CopyPlace, { status }: Entry) {
  return { ...attributes(status), modifiedNs: status.modifiedNs }
}

/** Not read for a file that is as it was; then it is in its place, and nobody has to make it. */
function contentOf({ content }: Entry): Uint8Array {
  if (content === undefined) throw new AgentError('INTERNAL', 'a file to be copied was not read')
  return content
}

function withoutContent({ content: _, ...entry }: Entry): Entry {
  return entry
}
