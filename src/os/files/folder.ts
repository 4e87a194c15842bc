import type { FileStatus } from './file-status.ts'

/** The permissions and owner of a file. */
export type FileAttributes = Pick<FileStatus, 'mode' | 'uid' | 'gid'>

/** The attributes of a new file. */
export type NewFile = FileAttributes & Pick<FileStatus, 'modifiedNs'>

/**
 * An open directory, for trees that others may change at any time. It reaches its entries by single names, never follows
 * symbolic links, and opens only regular files and directories. EINVAL for a name that is not the name of one entry. The
 * caller who opened it closes it.
 */
export interface Folder {
  /** The first names in the kernel's order, at most `atMost`, without those that are not UTF-8. */
  names(atMost: number): Promise<readonly string[]>
  /** undefined when no entry has this name. */
  status(name: string): Promise<FileStatus | undefined>
  /** Opens a directory in it; ENOTDIR for anything else, a symbolic link included. */
  open(name: string): Promise<Folder>
  /**
   * Opens a directory below it at a relative path. The kernel refuses a path that leads out (EXDEV) and one with a
   * symbolic link in it (ELOOP, or ENOTDIR at its end).
   */
  openBelow(path: string): Promise<Folder>
  /** The first bytes of a regular file, at most `maxBytes`, and its status right after. EINVAL for anything else. */
  read(name: string, maxBytes: number): Promise<{ readonly data: Uint8Array; readonly status: FileStatus }>
  readLink(name: string): Promise<string>
  makeFolder(name: string, mode: number): Promise<void>
  /** Creates a file; EEXIST when the name is taken. The time of change is precise to a microsecond. */
  create(name: string, data: Uint8Array, file: NewFile): Promise<void>
  /** Overwrites a regular file, which keeps its inode for those who have it open or mounted. */
  rewrite(name: string, data: Uint8Array, file: NewFile): Promise<void>
  /** Creates an empty file that only root may use, to be written in parts. EEXIST when the name is taken. */
  createFile(name: string): Promise<GrowingFile>
  /** Opens a file to be written on. EINVAL for anything but a regular file, ESTALE for one with another inode number. */
  reopenFile(name: string, inode: bigint): Promise<GrowingFile>
  /** The target is any bytes without a NUL. */
  symlink(target: string | Uint8Array, name: string): Promise<void>
  /** rename(2), to `as` or the same name: atomically replaces an entry, except for a directory that is not empty. */
  move(name: string, to: Folder, as?: string): Promise<void>
  /** rm -r, as `Files.removeTree` does it. */
  remove(name: string): Promise<void>
  /** rmdir: the directory must be empty. */
  removeFolder(name: string): Promise<void>
  /** Sets the owner of an entry, also of a symbolic link. The ID 4294967295 keeps what there is. */
  setOwner(name: string, uid: number, gid: number): Promise<void>
  /** Sets the attributes of the directory itself. */
  setAttributes(attributes: FileAttributes): Promise<void>
  close(): Promise<void>
}

/** A file that is open for writing. Who opened it closes it. */
export interface GrowingFile {
  readonly inode: bigint
  /** Writes all of the data, or throws. */
  write(data: Uint8Array, offset: number): Promise<void>
  setAttributes(attributes: FileAttributes): Promise<void>
  close(): Promise<void>
}
