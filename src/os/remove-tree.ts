import { constants } from 'node:fs'
import * as fs from 'node:fs/promises'
import { basename, dirname } from 'node:path'
import { fromNodeError, succeeded } from './errors.ts'
import type { Native } from './native.ts'
import type { Fd } from './os.ts'

/**
 * rm -r that stays on one mount. Directories are opened one below the other by openat2(2), which refuses mount points
 * and symbolic links, and entries are removed through the open directory, so that nobody can swap a
 * directory for a link meanwhile. Stops with EXDEV or EBUSY at the first thing that is mounted over.
 */
export async function removeTree(native: Native, path: string): Promise<void> {
  const status = await fs.lstat(path).catch((error) => {
    if (isMissing(error)) return undefined
    throw fromNodeError('remove', path, error)
  })
  if (status === undefined) return
  const parent = openDirectory(native, {
    directory: AT_FDCWD,
    name: dirname(path),
    path: dirname(path),
    resolve: 0,
  })
  try {
    await removeEntry(native, parent, { name: basename(path), isDirectory: status.isDirectory(), path })
  } finally {
    native.close(parent)
  }
}

interface Entry {
  readonly name: string
  readonly isDirectory: boolean
  /** For messages. */
  readonly path: string
}

async function removeEntry(native: Native, parent: Fd, entry: Entry): Promise<void> {
  if (entry.isDirectory) await emptyDirectory(native, parent, entry)
  const place = `/proc/self/fd/${parent}/${entry.name}`
  const removed = entry.isDirectory ? fs.rmdir(place) : fs.unlink(place)
  await removed.catch((error) => {
    if (!isMissing(error)) throw fromNodeError('remove', entry.path, error)
  })
}

async function emptyDirectory(native: Native, parent: Fd, entry: Entry): Promise<void> {
  const { name, path } = entry
  const directory = openDirectory(native, { directory: parent, name, path, resolve: STAY_BELOW })
  try {
    const children = await fs
      .readdir(`/proc/self/fd/${directory}`, { withFileTypes: true })
      .catch((error) => {
        throw fromNodeError('remove', path, error)
      })
    for (const child of children) {
      await removeEntry(native, directory, {
        name: child.name,
        isDirectory: child.isDirectory(),
        path: `${path}/${child.name}`,
      })
    }
  } finally {
    native.close(directory)
  }
}

function openDirectory(
  native: Native,
  at: { readonly directory: Fd; readonly name: string; readonly path: string; readonly resolve: number },
): Fd {
  const flags = constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW
  const opened = native.openAt2(at.directory, at.name, { flags, mode: 0, resolve: at.resolve })
  return succeeded('remove', at.path, opened)
}

function isMissing(error: unknown): boolean {
  return error instanceof Error && 'code' in error && error.code === 'ENOENT'
}

const AT_FDCWD = -100
/** RESOLVE_NO_XDEV, RESOLVE_NO_MAGICLINKS, RESOLVE_NO_SYMLINKS and RESOLVE_BENEATH of linux/openat2.h. */
const STAY_BELOW = 0x01 | 0x02 | 0x04 | 0x08
