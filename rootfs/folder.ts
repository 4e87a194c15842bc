import {
  chmodSync,
  copyFileSync,
  lstatSync,
  lutimesSync,
  mkdirSync,
  readdirSync,
  readlinkSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { completeTree, directory, fileFrom, link, type TreeEntry } from './tree.ts'

/**
 * Lays `entries` out below the empty folder `root`, for the tools that make a file system from a folder. All
 * times are 0. Throws for device nodes: no file system image needs one, the guest mounts devtmpfs.
 */
export function writeFolder(root: string, entries: readonly TreeEntry[]): void {
  const complete = completeTree(entries)
  for (const entry of complete) writeEntry(join(root, entry.path), entry)
  // From the bottom up: writing an entry changes its folder's time.
  for (const entry of complete.toReversed())
    (entry.kind === 'link' ? lutimesSync : utimesSync)(join(root, entry.path), 0, 0)
  chmodSync(root, 0o755)
  utimesSync(root, 0, 0)
}

/** The files, folders and links below the folder `root` of this machine, to be `path` of an image ('' its root). */
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
      throw new Error(`${entry.path}: a file system image holds no device nodes`)
    default:
      throw new Error(`unknown entry ${entry satisfies never}`)
  }
  // Apart from creation, so that the umask has no say.
  chmodSync(path, entry.mode)
}
