import { constants } from 'node:fs'
import { basename, dirname } from 'node:path'
import { errnoOf } from '../../base/errors.ts'
import { checkErrno, fromNodeError } from '../errors.ts'
import type { Native } from '../native.ts'
import { AT_FDCWD } from '../open-flags.ts'
import type { Fd } from '../streams/streams.ts'
import * as fs from './node-files.ts'

/**
 * openat2(2) opens each directory below its parent and refuses mount points and links, so nothing can swap a directory
 * for a link. Names are bytes, because they need not be UTF-8. Throws EXDEV or EBUSY at a mount point.
 */
export async function removeTree(native: Native, path: string): Promise<void> {
  const status = await fs.lstat(path).catch((error) => {
    if (errnoOf(error) === 'ENOENT') return undefined
    throw fromNodeError('remove', path, error)
  })
  if (status === undefined) return
  const how = { flags: DIRECTORY, mode: 0, resolve: 0 }
  const parent = checkErrno('remove', path, native.openAt2(AT_FDCWD, dirname(path), how))
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
  readonly path: string
}

async function removeEntry(native: Native, parent: Fd, entry: Entry): Promise<void> {
  if (entry.isDirectory) await emptyDirectory(native, parent, entry)
  const place = Buffer.concat([Buffer.from(`/proc/self/fd/${parent}/`), entry.name])
  const removed = entry.isDirectory ? fs.rmdir(place) : fs.unlink(place)
  await removed.catch((error) => {
    if (errnoOf(error) !== 'ENOENT') throw fromNodeError('remove', entry.path, error)
  })
}

async function emptyDirectory(native: Native, parent: Fd, entry: Entry): Promise<void> {
  const { name, path } = entry
  const directory = checkErrno('remove', path, native.openAt2(parent, name, STAY_BELOW))
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

const PART = 1024

async function someEntries(directory: Fd, path: string): Promise<readonly Entry[]> {
  const entries: Entry[] = []
  try {
    // With this encoding the names are bytes; Node's types know texts only.
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

const DIRECTORY = constants.O_RDONLY | constants.O_DIRECTORY

/** RESOLVE_NO_XDEV, _NO_MAGICLINKS, _NO_SYMLINKS and _BENEATH of linux/openat2.h. */
const STAY_BELOW = { flags: DIRECTORY | constants.O_NOFOLLOW, mode: 0, resolve: 0x01 | 0x02 | 0x04 | 0x08 }
