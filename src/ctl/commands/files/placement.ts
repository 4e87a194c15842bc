import { posix } from 'node:path'
import type { FileKind } from '../../../client/files/file-kind.ts'
import { CommandFailure, EXIT } from '../../command.ts'

/** The machine or container that a copy goes to. */
export interface TargetSide {
  /** The kind of what is at a path, where a link counts as what it leads to; undefined for nothing. */
  readonly kindAt: (path: string) => Promise<FileKind | undefined>
  /** A path as the errors show it. */
  readonly shown: (path: string) => string
}

/** The source of a copy. */
export interface Source {
  /** Empty for the root. */
  readonly name: string
  /** Only what is in the folder, as of a path that ends in `/.`. */
  readonly contents: boolean
  readonly kind: FileKind
}

/** Where a copy goes. */
export interface Placement {
  /** A folder that exists. */
  readonly folder: string
  /** The name that the copy gets in it; undefined when only the contents of a folder go there. */
  readonly name: string | undefined
}

/** Whether a path means only the contents of a folder. */
export function meansContents(path: string): boolean {
  return path === '/' || /(^|\/)\.$/.test(path)
}

/**
 * Where a source goes by docker's rules: into a folder that exists, or else to the path itself, whose parent must exist.
 * Throws {@link CommandFailure}.
 */
export async function placementOf(source: Source, target: string, side: TargetSide): Promise<Placement> {
  const path = posix.resolve(target)
  const there = await side.kindAt(target)
  const isFolder = source.kind === 'folder'
  if (there === 'folder') {
    if (source.name === '' || (isFolder && source.contents)) return { folder: path, name: undefined }
    const replaced = posix.join(path, source.name)
    checkReplaced(isFolder, await side.kindAt(replaced), side.shown(replaced))
    return { folder: path, name: source.name }
  }
  const { base, dir } = posix.parse(path)
  if (there !== undefined) checkReplaced(isFolder || target.endsWith('/'), there, side.shown(target))
  else if (target.endsWith('/') && !isFolder) throw refusal(side.shown(target), 'no such folder')
  else if ((await side.kindAt(dir)) !== 'folder') throw refusal(side.shown(dir), 'no such folder')
  return { folder: dir, name: base }
}

/** A folder does not replace anything else, nor anything else a folder. */
function checkReplaced(wantsFolder: boolean, there: FileKind | undefined, shown: string): void {
  if (there === undefined || (there === 'folder') === wantsFolder) return
  throw refusal(shown, `a ${there}, want ${wantsFolder ? 'a folder' : 'no folder, for a file'}`)
}

function refusal(shown: string, text: string): CommandFailure {
  return new CommandFailure(EXIT.failed, `cp: ${shown}: ${text}`)
}
