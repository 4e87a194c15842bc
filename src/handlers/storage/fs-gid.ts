import { AgentError } from '../../base/errors.ts'
import type { Files } from '../../os/files/files.ts'

const PREFIX = 'fsgid='
const SETGID = 0o2000

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
