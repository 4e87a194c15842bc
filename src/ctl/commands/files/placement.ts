import { posix } from 'node:path'
import type { FileKind } from '../../../client/files/file-kind.ts'
import { CommandFailure, EXIT } from '../../command.ts'

export interface TargetSide {
  /** The kind of the file that a path leads to through links; undefined for nothing. */
  readonly kindAt: (path: string) => Promise<FileKind | undefined>
  readonly shown: (path: string) => string
}

export interface Source {
  /** Empty for the root. */
  readonly name: string
  /** Copy only what is in the folder, as for a path that ends in `/.`. */
  readonly contents: boolean
  readonly kind: FileKind
}

export interface Placement {
  /** An existing folder. */
  readonly folder: string
  /** The name of the copy; undefined when only the contents of a folder are copied. */
  readonly name: string | undefined
}

export function meansContents(path: string): boolean {
  return path === '/' || /(^|\/)\.$/.test(path)
}

/** Docker's rules: into an existing folder, else to the path itself, whose parent must exist. */
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

/** A folder and any other file do not replace each other. */
function checkReplaced(wantsFolder: boolean, there: FileKind | undefined, shown: string): void {
  if (there === undefined || (there === 'folder') === wantsFolder) return
  throw refusal(shown, `a ${there}, want ${wantsFolder ? 'a folder' : 'no folder, for a file'}`)
}

function refusal(shown: string, text: string): CommandFailure {
  return new CommandFailure(EXIT.failed, `cp: ${shown}: ${text}`)
}
