import type { FileStatus } from './file-status.ts'
import type { Folder } from './folder.ts'

/**
 * The longest file that is read whole unless its reader says otherwise. A container can make files of /proc and of its
 * cgroups long, and the agent has little memory.
 */
export const MAX_READ_BYTES = 1024 * 1024

/** Files on disk, in /proc and in /sys. Pipes, ptys and fifos are `Streams`. */
export interface Files {
  /** A whole file; EFBIG when it has more than `maxBytes`, by default {@link MAX_READ_BYTES}. */
  readText(path: string, maxBytes?: number): Promise<string>
  readBytes(path: string, maxBytes?: number): Promise<Uint8Array>
  /**
   * Small files of the kernel, read in one trip to a thread: their texts, empty for one that cannot be read or has more
   * than 4 KiB.
   */
  readSmall(paths: readonly string[]): Promise<readonly string[]>
  /**
   * The first bytes of a regular file, at most `maxBytes`. Follows no symbolic link on the way (ELOOP), and refuses
   * anything that is not a regular file without opening it (EISDIR, EINVAL).
   */
  readHead(path: string, maxBytes: number): Promise<Uint8Array>
  /** Creates or truncates. `mode` applies to a new file only. */
  write(path: string, data: string | Uint8Array, options?: { readonly mode?: number }): Promise<void>
  /** mkdir -p; existing directories stay as they are. */
  makeDirectories(path: string, mode?: number): Promise<void>
  /** mkdir of one directory; EEXIST when it exists. */
  makeDirectory(path: string, mode?: number): Promise<void>
  removeFile(path: string): Promise<void>
  /** rmdir: the directory must be empty. */
  removeDirectory(path: string): Promise<void>
  /** rm -r that never crosses to another device and never follows a symbolic link. Does nothing for a missing path. */
  removeTree(path: string): Promise<void>
  /** undefined when nothing is at `path`. Does not follow a symbolic link at the end. */
  lstat(path: string): Promise<FileStatus | undefined>
  /** undefined when nothing is at `path`. Follows symbolic links. */
  stat(path: string): Promise<FileStatus | undefined>
  /** Names in a directory, sorted; [] when it does not exist. EFBIG when there are more than {@link MAX_NAMES}. */
  list(path: string): Promise<readonly string[]>
  /** The same one after the other and in any order, for a directory that may have millions. */
  names(path: string): AsyncIterable<string>
  /**
   * Names of the directories in a directory, sorted, without links to directories; [] when it does not exist. EFBIG when there are
   * more than {@link MAX_NAMES} names.
   */
  listFolders(path: string): Promise<readonly string[]>
  /**
   * Whether something is at `path` and no part of `path` is a symbolic link. False when the kernel cannot tell (before
   * 5.6).
   */
  isReachedWithoutLinks(path: string): Promise<boolean>
  /**
   * Whether a block device node has the numbers that sysfs shows in `<device>/dev`. False when one of the two does not
   * exist.
   */
  isBlockNodeOf(node: string, device: string): Promise<boolean>
  readLink(path: string): Promise<string>
  symlink(target: string, path: string): Promise<void>
  rename(from: string, to: string): Promise<void>
  chmod(path: string, mode: number): Promise<void>
  chown(path: string, uid: number, gid: number): Promise<void>
  /**
   * Opens a directory; the caller closes it. ENOENT when nothing is there, ENOTDIR when it is not a directory or the last
   * component of `path` is a symbolic link.
   */
  openFolder(path: string): Promise<Folder>
}

/** How many names of a directory are held at once: a container may make millions, of which each takes memory. */
export const MAX_NAMES = 65_536

/**
 * Small files on a tmpfs in folders that only the agent writes to, such as the input files of helper programs, and what the
 * kernel has ready in memory. Calls run on the calling thread, because each trip through a thread pool takes longer than
 * the work on memory.
 */
export interface ScratchFiles
  extends Pick<
    Files,
    'readText' | 'write' | 'makeDirectories' | 'stat' | 'rename' | 'removeFile' | 'removeDirectory'
  > {
  /** As of {@link Files}. Faster when there is nothing in the folder but files with these names, or some of them. */
  removeTree(path: string, names?: readonly string[]): Promise<void>
  /** The last bytes of a file, at most `maxBytes`. */
  readTail(path: string, maxBytes: number): Promise<string>
  /** Opens a directory; the caller closes it. Errors as `Files.openFolder`. */
  openFolder(path: string): Promise<ScratchFolder>
}

/** An open directory of scratch files. As with a {@link Folder}, nothing in it leads out of it. */
export interface ScratchFolder extends Pick<Folder, 'names' | 'removeFolder' | 'close'> {
  /** Opens a directory in it; ENOTDIR for anything else, a symbolic link included. */
  open(name: string): Promise<ScratchFolder>
  /** A whole regular file; EINVAL or ELOOP for anything else, EFBIG when it has more than `maxBytes`. */
  readText(name: string, maxBytes: number): Promise<string>
  /** unlink(2): removes anything but a directory. */
  removeFile(name: string): Promise<void>
}
