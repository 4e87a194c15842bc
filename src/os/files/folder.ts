import type { StoredBytes } from '../../base/stored-bytes.ts'
import type { FileStatus } from './file-status.ts'

export type FileAttributes = Pick<FileStatus, 'mode' | 'uid' | 'gid'>

export type NewFile = FileAttributes & Pick<FileStatus, 'modifiedNs'>

/**
 * An open directory, for trees that others may change at any time. It takes the names of single entries (EINVAL for
 * others), never follows symbolic links, and opens only regular files and directories. The caller closes it.
 */
export interface Folder {
  /** In the kernel's order, without names that are not UTF-8. */
  names(atMost: number): Promise<readonly string[]>
  /** undefined when no entry has this name. */
  status(name: string): Promise<FileStatus | undefined>
  /** ENOTDIR for anything but a directory, a symbolic link included. */
  open(name: string): Promise<Folder>
  /** EXDEV for a path that leads out, ELOOP or ENOTDIR (at its end) for a symbolic link. */
  openBelow(path: string): Promise<Folder>
  /** The first bytes of a regular file, and its status right after. EINVAL for anything else. */
  read(name: string, maxBytes: number): Promise<{ readonly data: Uint8Array; readonly status: FileStatus }>
  readLink(name: string): Promise<string>
  makeFolder(name: string, mode: number): Promise<void>
  /** EEXIST when the name is taken. The time of change is precise to a microsecond. */
  create(name: string, data: Uint8Array, file: NewFile): Promise<void>
  /** Overwrites a regular file, which keeps its inode for those who have it open or mounted. */
  rewrite(name: string, data: Uint8Array, file: NewFile): Promise<void>
  /** An empty file that only root may use, to be written in parts. EEXIST when the name is taken. */
  createFile(name: string): Promise<GrowingFile>
  /** EINVAL for anything but a regular file, ESTALE for another inode number. */
  reopenFile(name: string, inode: bigint): Promise<GrowingFile>
  /** The target is any bytes without a NUL. */
  symlink(target: string | Uint8Array, name: string): Promise<void>
  /** rename(2): atomically replaces an entry, except for a directory that is not empty. */
  move(name: string, to: Folder, as?: string): Promise<void>
  /** rm -r, as `Files.removeTree` does it. */
  remove(name: string): Promise<void>
  /** rmdir: the directory must be empty. */
  removeFolder(name: string): Promise<void>
  /** Does not follow a symbolic link. The ID 4294967295 keeps the old one. */
  setOwner(name: string, uid: number, gid: number): Promise<void>
  /** Changes the directory itself. */
  setAttributes(attributes: FileAttributes): Promise<void>
  close(): Promise<void>
}

/** The caller closes it. */
export interface GrowingFile {
  readonly inode: bigint
  /** Writes all of the data, or throws. */
  write(data: Uint8Array | StoredBytes, offset: number): Promise<void>
  setAttributes(attributes: FileAttributes): Promise<void>
  close(): Promise<void>
}
