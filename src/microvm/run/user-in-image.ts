import { posix } from 'node:path'
import { messageOf } from '../../base/errors.ts'
import { tool } from '../../build/tool.ts'
import type { ContainerRequest } from '../../client/container/container-spec.ts'
import { findUser, hasName, parseUser, type UserWord } from '../../client/container/container-user.ts'
import { UsageError } from '../command-line/usage-error.mjs'

/** The word of `--user`. Throws {@link UsageError}. */
export function userWord(text: string): UserWord {
  return orUsageError(() => parseUser(text))
}

/** The ids of `--user` by the files of the ext4 image of a container's root. Throws {@link UsageError} for an unknown name. */
export async function userInImage(
  word: UserWord,
  image: string,
  signal: AbortSignal,
): Promise<ContainerRequest['user']> {
  const textOf = (path: string) => (hasName(word) ? textIn(image, path, signal) : '')
  const [passwd, group] = await Promise.all([textOf('/etc/passwd'), textOf('/etc/group')])
  return orUsageError(() => findUser(word, { passwd, group }))
}

/** Links in a row that are followed, as by Linux. */
const MOST_LINKS = 40

/** The text of a file in the image; empty when there is none. debugfs follows all links of a path but the last. */
async function textIn(image: string, path: string, signal: AbortSignal, links = MOST_LINKS): Promise<string> {
  const ask = (request: string) =>
    tool('debugfs', ['-R', `${request} "${path}"`, image], { debianPackage: 'e2fsprogs', signal })
  const [, target] = /^Fast link dest: "(.*)"$/m.exec(await ask('stat')) ?? []
  if (target === undefined) return await ask('cat')
  return links === 0 ? '' : await textIn(image, posix.resolve(posix.dirname(path), target), signal, links - 1)
}

function orUsageError<T>(read: () => T): T {
  try {
    return read()
  } catch (error) {
    throw new UsageError(`--user: ${messageOf(error)}`, { cause: error })
  }
}
