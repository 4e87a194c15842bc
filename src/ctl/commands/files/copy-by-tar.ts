import { lstatSync, statSync } from 'node:fs'
import { basename, join, posix, resolve } from 'node:path'
import { errnoOf } from '../../../base/errors.ts'
import { ContainerProgram, lacksProgram } from '../../../client/container/container-program.ts'
import { fileFailure } from '../../../client/files/file-failure.ts'
import { type FileKind, isCopied, kindOf } from '../../../client/files/file-kind.ts'
import { CommandFailure, type Context, EXIT, UsageError } from '../../command.ts'
import { startFailure } from '../containers/start-failure.ts'
import { type Copying, copyTree, type Tar, tarFailure } from './copy-tree.ts'
import { LocalTar } from './local-tar.ts'
import { meansContents, placementOf, type Source, type TargetSide } from './placement.ts'
import { kindOfFirst } from './rename-archive.ts'

export interface ContainerPath {
  readonly container: string
  readonly path: string
}

export async function copyIn(
  context: Context,
  source: string,
  target: ContainerPath,
  copying: Copying,
): Promise<void> {
  const kind = kindOfSource(source)
  const container = await tarsIn(context, target.container)
  const path = resolve(source)
  const named: Source = { name: basename(path), contents: meansContents(source), kind }
  const { from, words } = archiveWords(path, kind === 'folder')
  await copyTree({
    ...copying,
    from,
    creator: new LocalTar(words),
    sourceText: source,
    place: () => placementOf(named, target.path, container),
    extract: (folder) => container.start(['-x', '-f', '-', '-C', folder]),
    targetText: ({ folder, name = '' }) => container.shown(posix.join(folder, name)),
  })
}

export async function copyOut(
  context: Context,
  source: ContainerPath,
  target: string,
  copying: Copying,
): Promise<void> {
  const container = await tarsIn(context, source.container)
  const path = posix.resolve(source.path)
  const contents = meansContents(source.path)
  const sourceText = container.shown(source.path)
  const { from, words } = archiveWords(path, contents || source.path.endsWith('/'))
  await copyTree({
    ...copying,
    from,
    creator: await container.start(words),
    sourceText,
    place: async (kind) => {
      checkCopied(sourceText, kind)
      return await placementOf({ name: posix.basename(path), contents, kind }, target, THIS_MACHINE)
    },
    extract: async (folder) => new LocalTar(['-x', '-f', '-', '-C', folder]),
    targetText: ({ folder, name = '' }) => join(folder, name),
  })
}

/** tar's words for a path, and the name of the archive's top. A folder is archived as `.`, to follow a link. */
function archiveWords(
  path: string,
  isFolder: boolean,
): { readonly words: readonly string[]; readonly from: string } {
  const create = ['-c', '-f', '-', '-C']
  if (isFolder || path === '/') return { words: [...create, path, '.'], from: '' }
  const { base, dir } = posix.parse(path)
  return { words: [...create, dir, `./${base}`], from: base }
}

/** Throws {@link UsageError} for a path that cannot be copied. */
export function kindOfSource(path: string): FileKind {
  try {
    const kind = kindOf(lstatSync(path))
    checkCopied(path, kind)
    return kind
  } catch (error) {
    throw new UsageError(fileFailure(path, error), { cause: error })
  }
}

function checkCopied(shown: string, kind: FileKind): void {
  if (!isCopied(kind))
    throw new CommandFailure(EXIT.failed, `cp: ${shown}: a ${kind}, want a file, a folder or a link`)
}

const THIS_MACHINE: TargetSide = {
  kindAt: async (path) => {
    try {
      return kindOf(statSync(path))
    } catch (error) {
      if (errnoOf(error) === 'ENOENT') return undefined
      throw new CommandFailure(EXIT.failed, `cp: ${fileFailure(path, error)}`, { cause: error })
    }
  },
  shown: (path) => path,
}

async function tarsIn(
  context: Context,
  containerId: string,
): Promise<TargetSide & { start(words: readonly string[]): Promise<Tar> }> {
  const session = await context.session()
  const start = async (words: readonly string[]) => {
    try {
      return await ContainerProgram.start(session, containerId, ['tar', ...words], context.signal)
    } catch (error) {
      if (!lacksProgram(error)) throw startFailure('ExecProcess', error)
      const text = `cp: ${containerId}: no tar in the container, want an image that has tar`
      throw new CommandFailure(EXIT.failed, text, { cause: error })
    }
  }
  const shown = (path: string) => `${containerId}:${path}`
  return { start, shown, kindAt: (path) => kindByTar(start, path, shown(path)) }
}

/** Archives the path, and reads the kind from tar's first header. */
async function kindByTar(
  start: (words: readonly string[]) => Promise<Tar>,
  path: string,
  shown: string,
): Promise<FileKind | undefined> {
  const { words } = archiveWords(posix.resolve(path), false)
  const tar = await start(['-h', ...words])
  const kind = await kindOfFirst(tar.output())
  if (kind !== undefined) {
    await tar.kill()
    return kind
  }
  const end = await tar.end()
  if (/: (No such file or directory|Not a directory)/.test(end.errors)) return undefined
  throw tarFailure(shown, end)
}
