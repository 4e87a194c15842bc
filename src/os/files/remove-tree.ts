import { constants } from 'node:fs'
import * as fs from 'node:fs/promises'
import { basename, dirname } from 'node:path'
import { checkErrno, fromNodeError } from '../errors.ts'
import type { Native } from '../native.ts'
import { AT_FDCWD } from '../open-flags.ts'
import type { Fd } from '../streams/streams.ts'

/**
 * rm -r that stays on one mount. Opens each directory below its parent by openat2(2), which refuses mount points and
 * symbolic links, and removes entries through the open directory, so that nothing can swap a directory for a link in
 * between. Names are bytes, because they need not be UTF-8. Throws EXDEV or EBUSY at the first mount point.
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
    path,
    flags: 0,
    resolve: 0,
  })
  try {
    await removeEntry(native, parent, {
      name: Buffer.from(basename(path)),
      isDirectory: status.isDirectory(),
      path,
    })
  } finally {
    native.close(parent)
  }
}

interface Entry {
  readonly name: Buffer
  readonly isDirectory: boolean
  /** For error texts. */
  readonly path: string
}

async function removeEntry(native: Native, parent: Fd, entry: Entry): Promise<void> {
  if (entry.isDirectory) await emptyDirectory(native, parent, entry)
  const place = Buffer.concat([Buffer.from(`/proc/self/fd/${parent}/`), entry.name])
  const removed = entry.isDirectory ? fs.rmdir(place) : fs.unlink(place)
  await removed.catch((error) => {
    if (!isMissing(error)) throw fromNodeError('remove', entry.path, error)
  })
}

async function emptyDirectory(native: Native, parent: Fd, entry: Entry): Promise<void> {
  const { name, path } = entry
  const directory = openDirectory(native, { directory: parent, name, path, ...STAY_BELOW })
  try {
    // A part at a time, because a container may have made millions of files.
    for (let part = await someEntries(directory, path); part.length > 0; ) {
      for (const child of part) await removeEntry(native, directory, child)
      part = await someEntries(directory, path)
    }
  } finally {
    native.close(directory)
  }
}

/** How many entries are held at once. */
const PART = 1024

/** The first entries of an open directory; none when it is empty. */
async function someEntries(directory: Fd, path: string): Promise<readonly Entry[]> {
  const entries: Entry[] = []
  try {
    // With buffers the names are bytes; the types of Node know texts only.
    const listing = await fs.opendir(`/proc/self/fd/${directory}`, {
      encoding: 'buffer' as never,
      bufferSize: PART,
    })
    try {
      for (
        let entry = await listing.read();
        entry !== null && entries.length < PART;
        entry = await listing.read()
      ) {
        const name = Buffer.from(entry.name)
        entries.push({ name, isDirectory: entry.isDirectory(), path: `${path}/${name.toString()}` })
      }
    } finally {
      await listing.close()
    }
  } catch (error) {
    throw fromNodeError('remove', path, error)
  }
  return entries
}

function openDirectory(
  native: Native,
  at: {
    readonly directory: Fd
    readonly name: string | Buffer
    readonly path: string
    readonly flags: number
    readonly resolve: number
  },
): Fd {
  const flags = constants.O_RDONLY | constants.O_DIRECTORY | at.flags
  return checkErrno(
    'remove',
    at.path,
    native.openAt2(at.directory, at.name, { flags, mode: 0, resolve: at.resolve }),
  )
}

function isMissing(error: unknown): boolean {
  return error instanceof Error && 'code' in error && error.code === 'ENOENT'
}

/** O_NOFOLLOW, and RESOLVE_NO_XDEV, _NO_MAGICLINKS, _NO_SYMLINKS and _BENEATH of linux/openat2.h. */
const STAY_BELOW = { flags: constants.O_NOFOLLOW, resolve: 0x01 | 0x02 | 0x04 | 0x08 }
