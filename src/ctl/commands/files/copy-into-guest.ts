import { lstatSync, opendirSync } from 'node:fs'
import { join, posix, resolve } from 'node:path'
import { copyRequests } from '../../../client/files/copy-file.ts'
import { fileFailure } from '../../../client/files/file-failure.ts'
import { type FileKind, isCopied, kindOf } from '../../../client/files/file-kind.ts'
import { agentCalls } from '../../clients.ts'
import { CommandFailure, type Context, EXIT } from '../../command.ts'
import { kindOfSource } from './copy-by-tar.ts'
import { type Copying, checkLeftOut, incomplete } from './copy-tree.ts'

export async function copyIntoGuest(
  context: Context,
  source: string,
  target: string,
  copying: Copying,
): Promise<void> {
  kindOfSource(source)
  const agent = await agentCalls(context)
  const leftOut: string[] = []
  let isBegun = false
  try {
    for (const { from, kind, to } of entriesOf(resolve(source), target)) {
      if (!isCopied(kind)) leftOut.push(`${from} (a ${kind})`)
      else
        for await (const request of copyRequests(from, to)) {
          await agent.copyFile(request)
          isBegun = true
          copying.moved(request.data?.length ?? 0)
        }
    }
  } catch (error) {
    // A call without an answer may have been carried out.
    const isLost = error instanceof CommandFailure && error.exitStatus === EXIT.cannotRun
    throw isBegun || isLost ? incomplete(error, target, copying) : error
  }
  checkLeftOut(leftOut)
}

interface Entry {
  readonly from: string
  readonly to: string
  readonly kind: FileKind
}

/** A tree with each entry's place in the guest; a folder comes before its contents. */
function* entriesOf(from: string, to: string): Generator<Entry, void, undefined> {
  const kind = orFailure(from, () => kindOf(lstatSync(from)))
  yield { from, to, kind }
  if (kind !== 'folder') return
  const folder = orFailure(from, () => opendirSync(from))
  try {
    for (let entry = folder.readSync(); entry !== null; entry = folder.readSync())
      yield* entriesOf(join(from, entry.name), posix.join(to, entry.name))
  } finally {
    folder.closeSync()
  }
}

/** The tree may change while it is read. */
function orFailure<T>(path: string, work: () => T): T {
  try {
    return work()
  } catch (error) {
    throw new CommandFailure(EXIT.failed, `cp: ${fileFailure(path, error)}`, { cause: error })
  }
}
