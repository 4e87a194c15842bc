import { basename, dirname } from 'node:path/posix'
import { errnoOf } from '../../../../base/errors.ts'
import type { FileStatus } from '../../../../os/files/file-status.ts'
import type { Files } from '../../../../os/files/files.ts'
import type { Folder } from '../../../../os/files/folder.ts'

/** More than this is not copied (spec E.3.5). */
const MOST_ENTRIES = 16
const MOST_BYTES = 1024 * 1024
/** A folder holds more than is copied of it while Kubernetes puts a new version beside the old one. */
const MOST_NAMES = 4 * MOST_ENTRIES

/** The link by which Kubernetes switches from one version of a volume to the next, each in a folder of its own. */
export const VERSION_LINK = '..data'

/** How often a source that is being changed is read before it is left for later. */
const ATTEMPTS = 3

/** A file, folder or symbolic link of a source, at the time it was looked at. */
export interface Entry {
  readonly status: FileStatus
  /** Where a symbolic link leads. */
  readonly target?: string
  /** What is in a file, when it is not known from before. */
  readonly content?: Uint8Array
}

/** By path below the source, which is `''` itself; a folder comes before what is in it. */
export type Entries = ReadonlyMap<string, Entry>

/** Why a source is not copied. */
export type Obstacle = 'missing' | 'too large' | 'changing'

/**
 * What is in a source, all of one moment: it is looked at until two looks see the same. Files that are as in `known` are
 * not read again. Symbolic links are never followed, and what is no file, folder or link is left out. Throws what the
 * kernel says about a file that cannot be read.
 */
export async function readSource(files: Files, source: string, known: Entries): Promise<Entries | Obstacle> {
  for (let attempt = 0; attempt < ATTEMPTS; attempt += 1) {
    const first = await look(files, source, known)
    if (first === 'changing') continue
    if (typeof first === 'string' || sameEntries(first, known)) return first
    const second = await look(files, source, first)
    if (typeof second !== 'string' && sameEntries(first, second)) return first
  }
  return 'changing'
}

/** Whether nothing has to be copied between the two. */
export function sameEntry(a: Entry | undefined, b: Entry): boolean {
  if (a === undefined || a.target !== b.target) return false
  const compared = b.status.kind === 'directory' ? ATTRIBUTES : ALL
  return compared.every((name) => a.status[name] === b.status[name])
}

/** A folder's times change with what is in it, which is compared by itself. */
const ATTRIBUTES = ['kind', 'mode', 'uid', 'gid'] as const
const ALL = [...ATTRIBUTES, 'sizeBytes', 'modifiedNs', 'changedNs'] as const

function sameEntries(a: Entries, b: Entries): boolean {
  return a.size === b.size && [...b].every(([path, entry]) => sameEntry(a.get(path), entry))
}

/** One look. */
interface Look {
  readonly known: Entries
  readonly entries: Map<string, Entry>
  bytes: number
}

async function look(files: Files, source: string, known: Entries): Promise<Entries | Obstacle> {
  const look: Look = { known, entries: new Map(), bytes: 0 }
  try {
    const above = await files.openFolder(dirname(source))
    try {
      return (await lookAt(look, above, basename(source), '')) ?? look.entries
    } finally {
      await above.close()
    }
  } catch (error) {
    // Found, and gone or replaced by something else when it was opened.
    if (VANISHED.has(errnoOf(error) ?? '')) return look.entries.size === 0 ? 'missing' : 'changing'
    throw error
  }
}

const VANISHED: ReadonlySet<string> = new Set(['ENOENT', 'ENOTDIR', 'EINVAL', 'ESTALE'])

async function lookAt(look: Look, above: Folder, name: string, path: string): Promise<Obstacle | undefined> {
  const status = await above.status(name)
  if (status === undefined) return path === '' ? 'missing' : 'changing'
  switch (status.kind) {
    case 'file':
      return lookAtFile(look, { above, name, path, status })
    case 'directory':
      return lookAtFolder(look, { above, name, path, status })
    case 'symlink':
      if (path === '') return 'missing'
      return add(look, path, { status, target: await above.readLink(name) })
    default:
      return path === '' ? 'missing' : undefined
  }
}

interface Found {
  readonly above: Folder
  readonly name: string
  readonly path: string
  readonly status: FileStatus
}

async function lookAtFile(look: Look, { above, name, path, status }: Found): Promise<Obstacle | undefined> {
  if (status.sizeBytes > MOST_BYTES - look.bytes) return 'too large'
  look.bytes += Number(status.sizeBytes)
  if (sameEntry(look.known.get(path), { status })) return add(look, path, { status })
  const { data, status: after } = await above.read(name, Number(status.sizeBytes))
  const isWhole = data.length === Number(status.sizeBytes) && sameEntry({ status }, { status: after })
  return isWhole ? add(look, path, { status, content: data }) : 'changing'
}

async function lookAtFolder(look: Look, { above, name, path, status }: Found): Promise<Obstacle | undefined> {
  const obstacle = add(look, path, { status })
  if (obstacle !== undefined) return obstacle
  const folder = await above.open(name)
  try {
    const names = await folder.names(MOST_NAMES + 1)
    if (names.length > MOST_NAMES) return 'too large'
    const counted = path === '' ? await withoutOtherVersions(folder, names) : names
    for (const each of counted.toSorted()) {
      const obstacle = await lookAt(look, folder, each, path === '' ? each : `${path}/${each}`)
      if (obstacle !== undefined) return obstacle
    }
    return undefined
  } finally {
    await folder.close()
  }
}

/**
 * In a volume of Kubernetes, what begins with two dots is a version: the one in use, or one that is being written or
 * removed.
 */
async function withoutOtherVersions(folder: Folder, names: readonly string[]): Promise<readonly string[]> {
  if ((await folder.status(VERSION_LINK))?.kind !== 'symlink') return names
  const version = await folder.readLink(VERSION_LINK)
  return names.filter((name) => !name.startsWith('..') || name === VERSION_LINK || name === version)
}

function add(look: Look, path: string, entry: Entry): Obstacle | undefined {
  // The source itself is none.
  if (look.entries.size > MOST_ENTRIES) return 'too large'
  look.entries.set(path, entry)
  return undefined
}
