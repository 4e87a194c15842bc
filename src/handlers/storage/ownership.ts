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
 * Gives everything in a storage to a group (spec E.4): the group may read (and write, unless it is read-only) all
 * files, and what is made later belongs to it too. Symbolic links are neither changed nor followed. Must run before
 * anybody else gets at the storage.
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
      if (status !== undefined && isGivenTo(status, group.groupId, readOnly)) return
    }
    await walk(
      os.files,
      root,
      (path, status) => give(os.files, path, status, group.groupId, readOnly),
      signal,
    )
  } catch (error) {
    if (errnoOf(error) !== 'EROFS') throw error
    // A file system that nobody can write keeps its owners; its users asked to read it only.
    log.warn('group of a read-only storage not changed', { mountPoint: root })
  }
}

async function walk(
  files: Files,
  root: string,
  visit: (path: string, status: FileStatus) => Promise<void>,
  signal: AbortSignal,
): Promise<void> {
  const pending = [root]
  for (let path = pending.pop(); path !== undefined; path = pending.pop()) {
    signal.throwIfAborted()
    const status = await files.lstat(path)
    if (status === undefined || status.kind === 'symlink') continue
    await visit(path, status)
    if (status.kind !== 'directory') continue
    for (const name of await files.list(path)) pending.push(`${path}/${name}`)
  }
}

async function give(
  files: Files,
  path: string,
  status: FileStatus,
  gid: number,
  readOnly: boolean,
): Promise<void> {
  const given = givenToGroup(status, gid, readOnly)
  // In this order: a change of owner clears the setuid and setgid bits.
  await files.chown(path, given.uid, given.gid)
  await files.chmod(path, given.mode)
}

/** What a file or directory is like that is given to a group. */
export function givenToGroup(status: FileStatus, gid: number, readOnly: boolean): FileAttributes {
  return { mode: status.mode | wantedBits(status, readOnly), uid: status.uid, gid }
}

function isGivenTo(status: FileStatus, gid: number, readOnly: boolean): boolean {
  const wanted = wantedBits(status, readOnly)
  return status.gid === gid && (status.mode & wanted) === wanted
}

function wantedBits({ kind }: FileStatus, readOnly: boolean): number {
  const access = readOnly ? 0o440 : 0o660
  return kind === 'directory' ? access | 0o110 | SETGID : access
}

const PREFIX = 'fsgid='

/** The group that the option `fsgid=` of a storage names. Throws INVALID_ARGUMENT when it is no number. */
export function fsGidOf(options: readonly string[]): number | undefined {
  const option = options.findLast((each) => each.startsWith(PREFIX))
  if (option === undefined) return undefined
  const gid = Number(option.slice(PREFIX.length))
  // The highest value means "leave it" to chown(2).
  if (!/^fsgid=\d+$/.test(option) || gid >= 0xff_ff_ff_ff) {
    throw new AgentError('INVALID_ARGUMENT', `storage option ${option}: not a group id`)
  }
  return gid
}

/** The options that are left for others. */
export function withoutFsGid(options: readonly string[]): string[] {
  return options.filter((option) => !option.startsWith(PREFIX))
}

/** Makes a directory the group's, and what is created in it too. */
export async function giveToGroup(files: Files, path: string, gid: number): Promise<void> {
  const status = await files.lstat(path)
  if (status === undefined) throw new AgentError('INTERNAL', `${path} is gone`)
  await files.chown(path, status.uid, gid)
  await files.chmod(path, status.mode | SETGID)
}
