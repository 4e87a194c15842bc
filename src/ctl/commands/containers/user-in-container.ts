import { messageOf } from '../../../base/errors.ts'
import { ContainerProgram, lacksProgram } from '../../../client/container/container-program.ts'
import type { ContainerRequest } from '../../../client/container/container-spec.ts'
import { findUser, hasName, type UserWord } from '../../../client/container/container-user.ts'
import type { Session } from '../../../client/open-session.ts'
import { CommandFailure, EXIT } from '../../command.ts'
import { startFailure } from './start-failure.ts'

/** The ids of a user. The container's `cat` reads the user files if the word has a name. */
export async function userIn(
  session: Session,
  containerId: string,
  word: UserWord,
  signal: AbortSignal,
): Promise<ContainerRequest['user']> {
  const read = (path: string) => (hasName(word) ? textOf(session, containerId, path, signal) : '')
  const [passwd, group] = await Promise.all([read('/etc/passwd'), read('/etc/group')])
  try {
    return findUser(word, { passwd, group })
  } catch (error) {
    throw new CommandFailure(EXIT.cannotRun, `--user: ${messageOf(error)}`, { cause: error })
  }
}

const MOST_BYTES = 1 << 20

/** The text of a file in a container; empty when there is none. */
async function textOf(
  session: Session,
  containerId: string,
  path: string,
  signal: AbortSignal,
): Promise<string> {
  const cat = await startCat(session, containerId, path, signal)
  let text = Buffer.alloc(0)
  try {
    for await (const piece of cat.output()) {
      text = Buffer.concat([text, piece])
      if (text.length > MOST_BYTES)
        throw new CommandFailure(EXIT.cannotRun, `--user: ${path} of the container: more than 1 MiB`)
    }
    await cat.end()
  } catch (error) {
    await cat.kill()
    throw error
  }
  return text.toString()
}

async function startCat(
  session: Session,
  containerId: string,
  path: string,
  signal: AbortSignal,
): Promise<ContainerProgram> {
  try {
    return await ContainerProgram.start(session, containerId, ['cat', path], signal)
  } catch (error) {
    throw lacksProgram(error) ? noCat(error) : startFailure('ExecProcess', error)
  }
}

export function noCat(cause: unknown): CommandFailure {
  const text = '--user: the container has no cat to look names up with, want numbers'
  return new CommandFailure(EXIT.cannotRun, text, { cause })
}
