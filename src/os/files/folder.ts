import type { FileStatus } from './file-status.ts'

/** Whose a file is, and what it may be used for. */
export type FileAttributes = Pick<FileStatus, 'mode' | 'uid' | 'gid'>

/** What a new file is like. */
export type NewFile = FileAttributes & Pick<FileStatus, 'modifiedNs'>

/**
 * A directory that is held open, for trees that somebody else may change at any time: everything in it is reached by one
 * name, symbolic links are never followed, and what is no regular file is never opened. Names that are no name of one
 * entry are refused with EINVAL.
 */
export interface Folder {
  /** The first names that the kernel gives, at most so many. Those that are not UTF-8 are left out. */
  names(atMost: number): Promise<readonly string[]>
  /** undefined when there is nothing of this name. */
  status(name: string): Promise<FileStatus | undefined>
  /** ENOTDIR for a symbolic link, too. Whoever opened it closes it. */
  open(name: string): Promise<Folder>
  /** The first bytes of a regular file, at most so many, and its status right after. EINVAL for anything else. */
  read(name: string, maxBytes: number): Promise<{ readonly data: Uint8Array; readonly status: FileStatus }>
  readLink(name: string): Promise<string>
  makeFolder(name: string, mode: number): Promise<void>
  /** Writes a file that is not there yet (EEXIST). The time of change is kept to a microsecond. */
  create(name: string, data: Uint8Array, file: NewFile): Promise<void>
  /** Writes over a regular file, which stays the same one for whoever has it open or mounted. */
  rewrite(name: string, data: Uint8Array, file: NewFile): Promise<void>
  symlink(target: string, name: string): Promise<void>
  /** rename(2): takes the place of what is there, at once, but for a directory that is not empty. */
  move(name: string, to: Folder): Promise<void>
  /** rm -r, as `Files.removeTree` does it. */
  remove(name: string): Promise<void>
  /** Changes the directory itself. */
  setAttributes(attributes: FileAttributes): Promise<void>
  close(): Promise<void>
}
