import { basename, dirname } from 'node:path/posix'
import { errnoOf } from '../../../../base/errors.ts'
import type { FileStatus } from '../../../../os/files/file-status.ts'
import type { Files } from '../../../../os/files/files.ts'
import type { Folder } from '../../../../os/files/folder.ts'

const MAX_ENTRIES = 16
const MAX_BYTES = 1024 * 1024
/** The limit of names in one folder. It is higher because Kubernetes creates a new version beside the old one. */
const MAX_NAMES = 4 * MAX_ENTRIES

/** The symbolic link to the current version of a Kubernetes volume; each version has a folder of its own. */
export const VERSION_LINK = '..data'

/** How many times one round tries to read a source that keeps changing. */
const ATTEMPTS = 3

export interface Entry {
  readonly status: FileStatus
  readonly target?: string
  /** The content of a new or changed file. */
  readonly content?: Uint8Array
}

/** Entries by path relative to the source, which is `''` itself; a folder comes before its content. */
export type Entries = ReadonlyMap<string, Entry>

export type Obstacle = 'missing' | 'too large' | 'changing'

/**
 * Returns a scan that equals `known` or that a second scan confirms. Files unchanged since `known` are not read again. Symbolic links are
 * never followed; fifos, devices and sockets are left out. Throws the kernel's error for an unreadable file.
 */
export async function readSource(files: Files, source: string, known: Entries): Promise<Entries | Obstacle> {
  for (let attempt = 0; attempt < ATTEMPTS; attempt += 1) {
    const first = await scan(files, source, known)
    if (first === 'changing') continue
    if (typeof first === 'string' || sameEntries(first, known)) return first
    const second = await scan(files, source, first)
    if (typeof second !== 'string' && sameEntries(first, second)) return first
  }
  return 'changing'
}

/** Whether `b` needs no copying when `a` has been copied. */
export function sameEntry(a: Entry | undefined, b: Entry): boolean {
  if (a === undefined || a.target !== b.target) return false
  const compared = b.status.kind === 'directory' ? ATTRIBUTES : ALL
  return compared.every((name) => a.status[name] === b.status[name])
}

/** A folder's times are not compared, because they change with its content. */
const ATTRIBUTES = ['kind', 'mode', 'uid', 'gid'] as const
const ALL = [...ATTRIBUTES, 'sizeBytes', 'modifiedNs', 'changedNs'] as const

function sameEntries(a: Entries, b: Entries): boolean {
  return a.size === b.size && [...b].every(([path, entry]) => sameEntry(a.get(path), entry))
}

interface Scan {
  readonly known: Entries
  readonly entries: Map<string, Entry>
  bytes: number
}

async function scan(files: Files, source: string, known: Entries): Promise<Entries | Obstacle> {
  const current: Scan = { known, entries: new Map(), bytes: 0 }
  try {
    const above = await files.openFolder(dirname(source))
    try {
      return (await scanEntry(current, above, basename(source), '')) ?? current.entries
    } finally {
      await above.close()
    }
  } catch (error) {
    // An entry was removed or replaced between its lstat and its open.
    if (VANISHED.has(errnoOf(error) ?? '')) return current.entries.size === 0 ? 'missing' : 'changing'
    throw error
  }
}

const VANISHED: ReadonlySet<string> = new Set(['ENOENT', 'ENOTDIR', 'EINVAL', 'ESTALE'])

async function scanEntry(
  scan: Scan,
  above: Folder,
  name: string,
  path: string,
): Promise<Obstacle | undefined> {
  const status = await above.status(name)
  if (status === undefined) return path === '' ? 'missing' : 'changing'
  switch (status.kind) {
    case 'file':
      return scanFile(scan, { above, name, path, status })
    case 'directory':
      return scanFolder(scan, { above, name, path, status })
    case 'symlink':
      if (path === '') return 'missing'
      return add(scan, path, { status, target: await above.readLink(name) })
    default:
      return path === '' ? 'missing' : undefined
  }
}

interface ScannedEntry {
  readonly above: Folder
  readonly name: string
  readonly path: string
  readonly status: FileStatus
}

async function scanFile(
  scan: Scan,
  { above, name, path, status }: ScannedEntry,
): Promise<Obstacle | undefined> {
  if (status.sizeBytes > MAX_BYTES - scan.bytes) return 'too large'
  scan.bytes += Number(status.sizeBytes)
  if (sameEntry(scan.known.get(path), { status })) return add(scan, path, { status })
  const { data, status: after } = await above.read(name, Number(status.sizeBytes))
  const isWhole = data.length === Number(status.sizeBytes) && sameEntry({ status }, { status: after })
  return isWhole ? add(scan, path, { status, content: data }) : 'changing'
}

async function scanFolder(
  scan: Scan,
  { above, name, path, status }: ScannedEntry,
): Promise<Obstacle | undefined> {
  const obstacle = add(scan, path, { status })
  if (obstacle !== undefined) return obstacle
  const folder = await above.open(name)
  try {
    const names = await folder.names(MAX_NAMES + 1)
    if (names.length > MAX_NAMES) return 'too large'
    const counted = path === '' ? await withoutOtherVersions(folder, names) : names
    for (const each of counted.toSorted()) {
      const obstacle = await scanEntry(scan, folder, each, path === '' ? each : `${path}/${each}`)
      if (obstacle !== undefined) return obstacle
    }
    return undefined
  } finally {
    await folder.close()
  }
}

/** Names with two leading dots are versions of a Kubernetes volume; all but the current one may be incomplete. */
async function withoutOtherVersions(folder: Folder, names: readonly string[]): Promise<readonly string[]> {
  if ((await folder.status(VERSION_LINK))?.kind !== 'symlink') return names
  const version = await folder.readLink(VERSION_LINK)
  return names.filter((name) => !name.startsWith('..') || name === VERSION_LINK || name === version)
}

function add(scan: Scan, path: string, entry: Entry): Obstacle | undefined {
  // The source itself does not count.
  if (scan.entries.size > MAX_ENTRIES) return 'too large'
  scan.entries.set(path, entry)
  return undefined
}
