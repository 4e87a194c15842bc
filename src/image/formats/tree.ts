import {
  chmodSync,
  copyFileSync,
  lstatSync,
  lutimesSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs'
import { join, posix } from 'node:path'

/** One entry of an image. Everything belongs to root; each writer gives all entries the same time. */
export type TreeEntry = {
  /** Relative to the image's root, without a leading slash. */
  readonly path: string
  /** Permission bits only. */
  readonly mode: number
} & (
  | { readonly kind: 'directory' }
  | { readonly kind: 'file'; readonly content: Content }
  | { readonly kind: 'link'; readonly target: string }
  | { readonly kind: 'character-device'; readonly major: number; readonly minor: number }
)

/** A file's bytes: a file of this machine, or the bytes themselves. */
export type Content = { readonly source: string } | { readonly bytes: Uint8Array }

/** A folder, empty unless other entries are below it. */
export function directory(path: string, mode = 0o755): TreeEntry {
  return { kind: 'directory', path, mode }
}

/** A copy of the file `source` of this machine. */
export function fileFrom(path: string, source: string, mode = 0o644): TreeEntry {
  return { kind: 'file', path, mode, content: { source } }
}

/** A file that holds `text`. */
export function fileOf(path: string, text: string, mode = 0o644): TreeEntry {
  return { kind: 'file', path, mode, content: { bytes: Buffer.from(text) } }
}

/** A symbolic link. */
export function link(path: string, target: string): TreeEntry {
  return { kind: 'link', path, mode: 0o777, target }
}

/** The bytes of a file entry. */
export function contentOf(content: Content): Uint8Array {
  return 'bytes' in content ? content.bytes : readFileSync(content.source)
}

/**
 * The entries sorted by path, with every missing parent folder added. Throws for a path that is listed twice (except for
 * folders) and for one whose parent is not a folder.
 */
export function completeTree(entries: readonly TreeEntry[]): readonly TreeEntry[] {
  const byPath = new Map<string, TreeEntry>()
  for (const entry of entries) {
    const present = byPath.get(entry.path)
    if (present !== undefined && (present.kind !== 'directory' || entry.kind !== 'directory'))
      throw new Error(`${entry.path}: listed twice`)
    byPath.set(entry.path, present ?? entry)
  }
  for (const entry of entries) addParents(byPath, entry.path)
  return [...byPath.values()].sort((a, b) => (a.path < b.path ? -1 : 1))
}

function addParents(byPath: Map<string, TreeEntry>, path: string): void {
  for (let parent = posix.dirname(path); parent !== '.'; parent = posix.dirname(parent)) {
    const present = byPath.get(parent)
    if (present === undefined) byPath.set(parent, directory(parent))
    else if (present.kind !== 'directory')
      throw new Error(`${path}: its parent ${parent} is a ${present.kind}, want a directory`)
  }
}

/**
 * Writes `entries` below the empty folder `root`, for the tools that make a file system from a folder. All times are 0.
 * Throws for device nodes: no file system image needs one, because the guest mounts devtmpfs.
 */
export function writeFolder(root: string, entries: readonly TreeEntry[]): void {
  const complete = completeTree(entries)
  for (const entry of complete) writeEntry(join(root, entry.path), entry)
  // Entries before their folders, because writing an entry changes the time of its folder.
  for (const entry of complete.toReversed())
    (entry.kind === 'link' ? lutimesSync : utimesSync)(join(root, entry.path), 0, 0)
  chmodSync(root, 0o755)
  utimesSync(root, 0, 0)
}

/** The files, folders and links below the folder `root` of this machine, as entries below `path` of an image ('' is its root). */
export function treeOfFolder(root: string, path: string): readonly TreeEntry[] {
  return readdirSync(root)
    .sort()
    .flatMap((name) => {
      const [source, inImage] = [join(root, name), join(path, name)]
      const status = lstatSync(source)
      const mode = status.mode & 0o7777
      if (status.isSymbolicLink()) return [link(inImage, readlinkSync(source))]
      if (!status.isDirectory()) return [fileFrom(inImage, source, mode)]
      return [directory(inImage, mode), ...treeOfFolder(source, inImage)]
    })
}

function writeEntry(path: string, entry: TreeEntry): void {
  switch (entry.kind) {
    case 'directory':
      mkdirSync(path)
      break
    case 'link':
      symlinkSync(entry.target, path)
      return
    case 'file':
      if ('source' in entry.content) copyFileSync(entry.content.source, path)
      else writeFileSync(path, entry.content.bytes)
      break
    case 'character-device':
      throw new Error(`${entry.path}: is a device node, want a file, folder or link`)
    default:
      throw new Error(`${entry satisfies never}: unknown kind of entry`)
  }
  // Not at creation, where the umask would clear bits.
  chmodSync(path, entry.mode)
}
