import { basename, dirname } from 'node:path/posix'
import { AgentError, errnoOf } from '../../../../base/errors.ts'
import { isWithin } from '../../../../base/paths.ts'
import type { FileStatus } from '../../../../os/files/file-status.ts'
import type { Files } from '../../../../os/files/files.ts'
import type { FileAttributes, Folder } from '../../../../os/files/folder.ts'
import { type Entries, type Entry, sameEntry, VERSION_LINK } from './read-source.ts'

export interface CopyPlace {
  readonly files: Files
  /** The copy itself, an existing folder or file. */
  readonly path: string
  /** An empty folder on the same file system that no container sees. */
  readonly staging: string
  readonly attributes: (status: FileStatus) => FileAttributes
}

/** One run, which turns the copy from `copied` into `wanted` and updates `copied` with each step. */
interface CopyRun {
  readonly place: CopyPlace
  readonly wanted: Entries
  readonly copied: Map<string, Entry>
  readonly top: Folder
  readonly staging: Folder
}

/**
 * Updates a copy to match its source. Each entry is built in the staging folder and moved into place by rename(2):
 * first folders and files, then the version link, then other links. Entries that the source lost are removed last; the
 * previous version of a volume stays until the next call, because a reader may use it. A container may change the copy,
 * so no symbolic link in it is followed. Throws the kernel's error; the next call continues there.
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

/** Writes to the existing file, because containers have mounted the file itself. */
async function rewriteFile(place: CopyPlace, entry: Entry, copied: Map<string, Entry>): Promise<void> {
  if (sameEntry(copied.get(''), entry)) return
  const above = await place.files.openFolder(dirname(place.path))
  try {
    await above.rewrite(basename(place.path), contentOf(entry), fileAttributes(place, entry))
  } finally {
    await above.close()
  }
  copied.set('', withoutContent(entry))
}

async function copyFolder(run: CopyRun): Promise<void> {
  const { wanted, copied, staging } = run
  // Leftovers of a call that failed.
  for (const leftover of await staging.names(Number.POSITIVE_INFINITY)) await staging.remove(leftover)
  for (const [path, entry] of [...copied])
    if (isOtherKind(entry, wanted.get(path))) await removeCopy(run, path)
  for (const [path, entry] of wanted) {
    // The entries of a new folder were copied together with it.
    if (isLink(entry) || sameEntry(copied.get(path), entry)) continue
    const exists = path === '' || copied.has(path)
    if (exists && entry.status.kind === 'directory') await changeFolder(run, path, entry)
    else await replace(run, path, entry)
  }
  const links = [...wanted].filter(([path, entry]) => isLink(entry) && !sameEntry(copied.get(path), entry))
  const switching = links.filter(([path]) => path === VERSION_LINK)
  for (const [path, entry] of switching) await replace(run, path, entry)
  for (const [path, entry] of links) if (path !== VERSION_LINK) await replace(run, path, entry)
  await removeGone(run, switching.length > 0)
}

async function removeGone(run: CopyRun, isSwitched: boolean): Promise<void> {
  const { wanted, copied } = run
  for (const path of [...copied.keys()]) {
    const [top = path] = path.split('/')
    const mayBeInUse = isSwitched && !wanted.has(top) && copied.get(top)?.status.kind === 'directory'
    if (!wanted.has(path) && !mayBeInUse) await removeCopy(run, path)
  }
}

async function replace(run: CopyRun, path: string, entry: Entry): Promise<void> {
  const { top, staging, copied, wanted } = run
  const name = basename(path)
  await build(run, staging, path)
  await inParentFolder(top, path, async (folder) => {
    // A container may have created a folder there, which rename would not replace.
    if (entry.status.kind === 'directory') await folder.remove(name)
    await staging.move(name, folder)
  })
  for (const [each, copy] of wanted) {
    if (isWithin(each, path)) copied.set(each, withoutContent(copy))
  }
}

async function build(run: CopyRun, folder: Folder, path: string): Promise<void> {
  const { place, wanted } = run
  const name = basename(path)
  const entry = wanted.get(path)
  if (entry === undefined) return
  if (entry.target !== undefined) return folder.symlink(entry.target, name)
  if (entry.status.kind === 'file') return folder.create(name, contentOf(entry), fileAttributes(place, entry))
  await folder.makeFolder(name, 0o700)
  const inner = await folder.open(name)
  try {
    for (const each of wanted.keys()) {
      if (each !== '' && dirname(each) === path) await build(run, inner, each)
    }
    await inner.setAttributes(place.attributes(entry.status))
  } finally {
    await inner.close()
  }
}

async function changeFolder({ top, place, copied }: CopyRun, path: string, entry: Entry): Promise<void> {
  // A path inside the folder, so that its parent is the folder itself.
  const within = path === '' ? '.' : `${path}/.`
  await inParentFolder(top, within, (folder) => folder.setAttributes(place.attributes(entry.status)))
  copied.set(path, entry)
}

async function removeCopy({ top, copied }: CopyRun, path: string): Promise<void> {
  if (!copied.has(path)) return
  try {
    await inParentFolder(top, path, (folder) => folder.remove(basename(path)))
  } catch (error) {
    // A container has removed a parent folder.
    if (errnoOf(error) !== 'ENOENT') throw error
  }
  for (const each of [...copied.keys()]) if (isWithin(each, path)) copied.delete(each)
}

/** Opens the parent folder component by component from `top`. */
async function inParentFolder(
  top: Folder,
  path: string,
  use: (folder: Folder) => Promise<void>,
): Promise<void> {
  const slash = path.indexOf('/')
  if (slash === -1) return use(top)
  const next = await top.open(path.slice(0, slash))
  try {
    await inParentFolder(next, path.slice(slash + 1), use)
  } finally {
    await next.close()
  }
}

function isLink({ status }: Entry): boolean {
  return status.kind === 'symlink'
}

/** rename(2) cannot replace a folder with another kind of entry, or the reverse. */
function isOtherKind(before: Entry, after: Entry | undefined): boolean {
  return after !== undefined && (before.status.kind === 'directory') !== (after.status.kind === 'directory')
}

function fileAttributes({ attributes }: CopyPlace, { status }: Entry) {
  return { ...attributes(status), modifiedNs: status.modifiedNs }
}

/** `readSource` leaves the content out only for unchanged files. */
function contentOf({ content }: Entry): Uint8Array {
  if (content === undefined) throw new AgentError('INTERNAL', 'watched storage: a changed file was not read')
  return content
}

function withoutContent({ content: _, ...entry }: Entry): Entry {
  return entry
}
