import type { AgentError } from '../../base/errors.ts'
import type { FileStatus } from './file-status.ts'
import type { Folder } from './folder.ts'

/** The default limit of a file that is read whole: a container can make files of /proc and its cgroups long. */
export const MAX_READ_BYTES = 1024 * 1024

/** Files on disk, in /proc and in /sys. Pipes, ptys and fifos are `Streams`. */
export interface Files {
  /** EFBIG when the file has more than `maxBytes`, by default {@link MAX_READ_BYTES}. */
  readText(path: string, maxBytes?: number): Promise<string>
  readBytes(path: string, maxBytes?: number): Promise<Uint8Array>
  /** Texts of kernel files; empty for one that cannot be read or exceeds 4 KiB. Calls of a moment share a trip to a thread. */
  readSmall(paths: readonly string[]): Promise<readonly string[]>
  /** The first bytes of a regular file, the only kind that is opened (EISDIR, EINVAL). ELOOP for a symbolic link. */
  readHead(path: string, maxBytes: number): Promise<Uint8Array>
  /** Creates or truncates. `mode` applies to a new file only. */
  write(path: string, data: string | Uint8Array, options?: { readonly mode?: number }): Promise<void>
  /** mkdir -p; existing directories stay as they are. */
  makeDirectories(path: string, mode?: number): Promise<void>
  /** EEXIST when it exists. */
  makeDirectory(path: string, mode?: number): Promise<void>
  removeFile(path: string): Promise<void>
  /** rmdir: the directory must be empty. */
  removeDirectory(path: string): Promise<void>
  /** The same for several, by one trip to a thread. Returns the errors by path. */
  removeDirectories(paths: readonly string[]): Promise<ReadonlyMap<string, AgentError>>
  /** rm -r that never crosses to another device and never follows a symbolic link. Does nothing for a missing path. */
  removeTree(path: string): Promise<void>
  /** undefined when nothing is at `path`. Does not follow a symbolic link at the end. */
  lstat(path: string): Promise<FileStatus | undefined>
  /** undefined when nothing is at `path`. Follows symbolic links. */
  stat(path: string): Promise<FileStatus | undefined>
  /** Names in a directory, sorted; [] when it does not exist. EFBIG when there are more than {@link MAX_NAMES}. */
  list(path: string): Promise<readonly string[]>
  /** The same in any order and without a limit, for a directory that may have millions. */
  names(path: string): AsyncIterable<string>
  /** Names of directories, sorted, without links to directories. [] and EFBIG as `list`. */
  listFolders(path: string): Promise<readonly string[]>
  /** Whether something is at `path`, with no symbolic link in it. False before kernel 5.6, which cannot tell. */
  isReachedWithoutLinks(path: string): Promise<boolean>
  /** Whether a block device node has the numbers in `<device>/dev` of sysfs. False when one does not exist. */
  isBlockNodeOf(node: string, device: string): Promise<boolean>
  readLink(path: string): Promise<string>
  symlink(target: string, path: string): Promise<void>
  rename(from: string, to: string): Promise<void>
  chmod(path: string, mode: number): Promise<void>
  chown(path: string, uid: number, gid: number): Promise<void>
  /** The caller closes it. ENOENT when nothing is there, ENOTDIR for anything else and for a final symbolic link. */
  openFolder(path: string): Promise<Folder>
}

/** Names of a directory held at once: a container may make millions, and each takes memory. */
export const MAX_NAMES = 65_536

/** Small files on a tmpfs in the agent's own folders. Calls run on this thread, which is faster than a pool. */
export interface ScratchFiles
  extends Pick<
    Files,
    'readText' | 'write' | 'makeDirectory' | 'makeDirectories' | 'stat' | 'removeFile' | 'removeDirectory'
  > {
  /** As of {@link Files}. Faster when the folder has only files with these names, or some of them. */
  removeTree(path: string, names?: readonly string[]): Promise<void>
  readTail(path: string, maxBytes: number): Promise<string>
  /** The target of a link in /proc. */
  readLink(path: string): Promise<string>
  /** Follows symbolic links. */
  exists(path: string): Promise<boolean>
  /** Writes a whole file or nothing. `PATH.new` is the unfinished one. */
  replace(path: string, data: string, mode: number): Promise<void>
  /** The caller closes it. Errors as `Files.openFolder`. */
  openFolder(path: string): Promise<ScratchFolder>
}

/** Nothing in the folder leads out of it, as with a {@link Folder}. */
export interface ScratchFolder extends Pick<Folder, 'names' | 'removeFolder' | 'close'> {
  /** ENOTDIR for anything but a directory, a symbolic link included. */
  open(name: string): Promise<ScratchFolder>
  /** A whole regular file; EINVAL or ELOOP for anything else, EFBIG when it has more than `maxBytes`. */
  readText(name: string, maxBytes: number): Promise<string>
  /** unlink(2): removes anything but a directory. */
  removeFile(name: string): Promise<void>
}
