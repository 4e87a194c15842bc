import type { Stats } from 'node:fs'

/** What a path names. */
export type FileKind = 'file' | 'folder' | 'link' | 'fifo' | 'socket' | 'device'

/** The kind of the file that has this status. */
export function kindOf(status: Stats): FileKind {
  if (status.isFile()) return 'file'
  if (status.isDirectory()) return 'folder'
  if (status.isSymbolicLink()) return 'link'
  if (status.isFIFO()) return 'fifo'
  return status.isSocket() ? 'socket' : 'device'
}

/** Whether a copy of it is worth something on another machine. */
export function isCopied(kind: FileKind): boolean {
  return kind === 'file' || kind === 'folder' || kind === 'link'
}
