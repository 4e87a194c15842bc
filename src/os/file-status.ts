import type { BigIntStats } from 'node:fs'
import type { FileKind, FileStatus } from './os.ts'

/** What `stat` of node:fs found, in the terms of the `Os` interface. */
export function fileStatus(stats: BigIntStats): FileStatus {
  const kind = kindOf(stats)
  const device = kind === 'block' || kind === 'character' ? stats.rdev : 0n
  return {
    kind,
    mode: Number(stats.mode & 0o7777n),
    uid: Number(stats.uid),
    gid: Number(stats.gid),
    device: stats.dev,
    inode: stats.ino,
    sizeBytes: stats.size,
    ...deviceNumbers(device),
  }
}

/** The dev_t of the Linux C library: 12 bits of major and 8 of minor below, the rest above (gnu_dev_major(3)). */
export function deviceNumbers(device: bigint): { readonly major: number; readonly minor: number } {
  return {
    major: Number(((device >> 8n) & 0xfffn) | ((device >> 32n) & 0xfffff000n)),
    minor: Number((device & 0xffn) | ((device >> 12n) & 0xffffff00n)),
  }
}

function kindOf(stats: BigIntStats): FileKind {
  if (stats.isDirectory()) return 'directory'
  if (stats.isSymbolicLink()) return 'symlink'
  if (stats.isBlockDevice()) return 'block'
  if (stats.isCharacterDevice()) return 'character'
  if (stats.isFIFO()) return 'fifo'
  if (stats.isSocket()) return 'socket'
  return 'file'
}
