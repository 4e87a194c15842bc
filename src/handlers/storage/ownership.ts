import { AgentError, errnoOf } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import type { FSGroup } from '../../gen/agent.ts'
import { FSGroupChangePolicy } from '../../gen/types.ts'
import type { FileStatus } from '../../os/files/file-status.ts'
import type { Files } from '../../os/files/files.ts'
import type { FileAttributes } from '../../os/files/folder.ts'
import type { Os } from '../../os/os.ts'

const SETGID = 0o2000

/**
 * Lets the group read all files, and write them unless the storage is read-only; new files belong to the group.
 * Symbolic links are not followed. Must run before a container can reach the storage.
 */
export async function applyFsGroup(
  request: { readonly root: string; readonly group: FSGroup; readonly readOnly: boolean },
  { os, log }: { readonly os: Pick<Os, 'files'>; readonly log: Logger },
  signal: AbortSignal,
): Promise<void> {
  const { root, group, readOnly } = request
  try {
    if (group.groupChangePolicy === FSGroupChangePolicy.OnRootMismatch) {
      const status = await os.files.lstat(root)
      if (status !== undefined && hasGroup(status, group.groupId, readOnly)) return
    }
    await walk(
      os.files,
      root,
      (path, status) => changeGroup(os.files, path, status, group.groupId, readOnly),
      signal,
    )
  } catch (error) {
    if (errnoOf(error) !== 'EROFS') throw error
    // A read-only file system keeps its owners; reading it is all that was requested.
    log.warn('group of a read-only storage not changed', { mountPoint: root })
  }
}

async function walk(
  files: Files,
  path: string,
  visit: (path: string, status: FileStatus) => Promise<void>,
  signal: AbortSignal,
): Promise<void> {
  signal.throwIfAborted()
  const status = await files.lstat(path)
  if (status === undefined || status.kind === 'symlink') return
  await visit(path, status)
  if (status.kind !== 'directory') return
  for await (const name of files.names(path)) await walk(files, `${path}/${name}`, visit, signal)
}

async function changeGroup(
  files: Files,
  path: string,
  status: FileStatus,
  gid: number,
  readOnly: boolean,
): Promise<void> {
  const attributes = attributesForGroup(status, gid, readOnly)
  // chown must come first because it clears the setuid and setgid bits.
  await files.chown(path, attributes.uid, attributes.gid)
  await files.chmod(path, attributes.mode)
}

export function attributesForGroup(status: FileStatus, gid: number, readOnly: boolean): FileAttributes {
  return { mode: status.mode | groupBits(status, readOnly), uid: status.uid, gid }
}

function hasGroup(status: FileStatus, gid: number, readOnly: boolean): boolean {
  const wanted = groupBits(status, readOnly)
  return status.gid === gid && (status.mode & wanted) === wanted
}

function groupBits({ kind }: FileStatus, readOnly: boolean): number {
  const access = readOnly ? 0o440 : 0o660
  return kind === 'directory' ? access | 0o110 | SETGID : access
}

const PREFIX = 'fsgid='

/** Undefined without the option. Throws INVALID_ARGUMENT when its value is not a group id. */
export function fsGidOf(options: readonly string[]): number | undefined {
  const option = options.findLast((each) => each.startsWith(PREFIX))
  if (option === undefined) return undefined
  const gid = Number(option.slice(PREFIX.length))
  // chown(2) takes the highest value as "leave unchanged".
  if (!/^fsgid=\d+$/.test(option) || gid >= 0xff_ff_ff_ff) {
    throw new AgentError('INVALID_ARGUMENT', `storage option ${option}: not a group id`)
  }
  return gid
}

/** File systems do not know `fsgid=`. */
export function withoutFsGid(options: readonly string[]): string[] {
  return options.filter((option) => !option.startsWith(PREFIX))
}

/** The setgid bit gives new files in the directory its group. */
export async function setFolderGroup(files: Files, path: string, gid: number): Promise<void> {
  const status = await files.lstat(path)
  if (status === undefined) throw new AgentError('INTERNAL', `storage ${path}: was removed`)
  await files.chown(path, status.uid, gid)
  await files.chmod(path, status.mode | SETGID)
}
