import type { FileStatus } from './file-status.ts'
import type { Folder } from './folder.ts'

/** Files on disk, /proc and /sys. Never used on pipes, ptys or fifos: those are `Streams`. */
export interface Files {
  readText(path: string): Promise<string>
  readBytes(path: string): Promise<Uint8Array>
  /**
   * The first bytes of a regular file, at most so many. Follows no symbolic link on the way (ELOOP), and refuses
   * whatever is no regular file without touching it (EINVAL).
   */
  readHead(path: string, maxBytes: number): Promise<Uint8Array>
  /** Creates or truncates. `mode` applies to a new file only. */
  write(path: string, data: string | Uint8Array, options?: { readonly mode?: number }): Promise<void>
  /** mkdir -p; existing directories are kept as they are. */
  makeDirectories(path: string, mode?: number): Promise<void>
  /** mkdir of one directory: EEXIST when it is there. */
  makeDirectory(path: string, mode?: number): Promise<void>
  removeFile(path: string): Promise<void>
  /** rmdir: the directory must be empty. */
  removeDirectory(path: string): Promise<void>
  /** rm -r that never crosses to another device and never follows a symbolic link. A missing path is fine. */
  removeTree(path: string): Promise<void>
  /** undefined when there is nothing at `path`. Does not follow a last symbolic link. */
  lstat(path: string): Promise<FileStatus | undefined>
  /** undefined when there is nothing at `path`. Follows symbolic links. */
  stat(path: string): Promise<FileStatus | undefined>
  /** Names in a directory; [] when it does not exist. */
  list(path: string): Promise<readonly string[]>
  /** Names of the directories in a directory, without those that links lead to; [] when it does not exist. */
  listFolders(path: string): Promise<readonly string[]>
  /**
   * Whether something is at `path` that no symbolic link leads to, nor is one itself; false as well where the kernel cannot
   * tell (before 5.6).
   */
  isReachedWithoutLinks(path: string): Promise<boolean>
  /**
   * Whether the block device node at a path has the numbers that sysfs tells of a device in `<device>/dev`. false also when
   * one of the two is not there.
   */
  isBlockNodeOf(node: string, device: string): Promise<boolean>
  readLink(path: string): Promise<string>
  symlink(target: string, path: string): Promise<void>
  rename(from: string, to: string): Promise<void>
  chmod(path: string, mode: number): Promise<void>
  chown(path: string, uid: number, gid: number): Promise<void>
  /**
   * Holds a directory open; whoever opened it closes it. ENOENT when there is nothing, ENOTDIR when it is no directory
   * or its last component is a symbolic link.
   */
  openFolder(path: string): Promise<Folder>
}

/**
 * Small files on a tmpfs in folders that nobody else writes to, such as those that a helper program is told something
 * by. Memory answers at once, while each trip through a pool of threads takes longer than all that is done there.
 */
export type ScratchFiles = Pick<Files, 'readText' | 'write' | 'makeDirectories' | 'removeTree'>
