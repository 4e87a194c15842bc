import { readFileSync } from 'node:fs'
import { posix } from 'node:path'

/** One entry of an image; everything belongs to root, and times are left to the writers (all the same). */
export type TreeEntry = {
  /** Below the image's root, without a leading slash. */
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

/** A folder that is empty unless other entries lie below it. */
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
 * The entries sorted by path, with every missing parent folder added. Throws for a path that is listed twice
 * (a folder may be) or that lies below something that is no folder.
 */
export function completeTree(entries: readonly TreeEntry[]): readonly TreeEntry[] {
  const byPath = new Map<string, TreeEntry>()
  for (const entry of entries) {
    const present = byPath.get(entry.path)
    if (present !== undefined && (present.kind !== 'directory' || entry.kind !== 'directory'))
      throw new Error(`the image would have ${entry.path} twice`)
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
      throw new Error(`the image has ${path} below ${parent}, a ${present.kind}`)
  }
}
