import type { Stats } from 'node:fs'

export type FileKind = 'file' | 'folder' | 'link' | 'fifo' | 'socket' | 'device'

export function kindOf(status: Stats): FileKind {
  if (status.isFile()) return 'file'
  if (status.isDirectory()) return 'folder'
  if (status.isSymbolicLink()) return 'link'
  if (status.isFIFO()) return 'fifo'
  return status.isSocket() ? 'socket' : 'device'
}

export function isCopied(kind: FileKind): boolean {
  return kind === 'file' || kind === 'folder' || kind === 'link'
}
