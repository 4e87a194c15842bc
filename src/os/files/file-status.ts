import { type BigIntStats, constants } from 'node:fs'

export type FileKind = 'file' | 'directory' | 'symlink' | 'block' | 'character' | 'fifo' | 'socket'

/** The result of lstat(2) and stat(2). */
export interface FileStatus {
  readonly kind: FileKind
  /** Permission bits including setuid, setgid and sticky (07777). */
  readonly mode: number
  readonly uid: number
  readonly gid: number
  readonly device: bigint
  readonly inode: bigint
  readonly sizeBytes: bigint
  /** In cgroupfs, a folder has two and one for each folder in it (kernfs_refresh_inode in fs/kernfs/inode.c). */
  readonly links: number
  /** Of the content, in nanoseconds since 1970. */
  readonly modifiedNs: bigint
  /** Of content, mode, owner or name, in nanoseconds since 1970. */
  readonly changedNs: bigint
  /** Of a device node, otherwise 0. */
  readonly major: number
  readonly minor: number
}

export function fileStatus(stats: BigIntStats): FileStatus {
  const kind = kindOfMode(Number(stats.mode)) ?? 'file'
  const device = kind === 'block' || kind === 'character' ? stats.rdev : 0n
  return {
    kind,
    mode: Number(stats.mode & 0o7777n),
    uid: Number(stats.uid),
    gid: Number(stats.gid),
    device: stats.dev,
    inode: stats.ino,
    sizeBytes: stats.size,
    links: Number(stats.nlink),
    modifiedNs: stats.mtimeNs,
    changedNs: stats.ctimeNs,
    ...deviceNumbers(device),
  }
}

/** Splits a dev_t of the C library: the low 12 bits of major and 8 of minor are below the rest (gnu_dev_major(3)). */
export function deviceNumbers(device: bigint): { readonly major: number; readonly minor: number } {
  return {
    major: Number(((device >> 8n) & 0xfffn) | ((device >> 32n) & 0xfffff000n)),
    minor: Number((device & 0xffn) | ((device >> 12n) & 0xffffff00n)),
  }
}

/** The kind of the type bits S_IFMT (man 7 inode); undefined for any other bits. */
export function kindOfMode(mode: number): FileKind | undefined {
  return KINDS[mode & constants.S_IFMT]
}

const KINDS: Readonly<Record<number, FileKind>> = {
  [constants.S_IFREG]: 'file',
  [constants.S_IFDIR]: 'directory',
  [constants.S_IFLNK]: 'symlink',
  [constants.S_IFBLK]: 'block',
  [constants.S_IFCHR]: 'character',
  [constants.S_IFIFO]: 'fifo',
  [constants.S_IFSOCK]: 'socket',
}
