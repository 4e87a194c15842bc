import { mkdirSync, readdirSync, readFileSync, rmSync, statfsSync, statSync } from 'node:fs'
import { constants } from 'node:os'
import { dirname } from 'node:path/posix'
import { errnoOf } from '../../base/errors.ts'
import { checkErrno, fromNodeError } from '../errors.ts'
import type { Native } from '../native.ts'

/**
 * Small files on a tmpfs that outlive the agent. A call takes effect before it returns. If the agent dies in it, the
 * file has its old content or its new one. Paths are relative.
 */
export interface StateFiles {
  /** Also makes a missing folder. */
  write(path: string, bytes: Uint8Array): void
  /** undefined when there is no such file. */
  read(path: string): Uint8Array | undefined
  size(path: string): number | undefined
  /** Removes a file, a folder with its contents, or all contents of the top. */
  remove(path: string): void
  /** Sorted; '' is the top. [] when the folder does not exist. The unfinished file is not listed. */
  list(folder: string): readonly string[]
  room(): StateRoom
}

/** `files` counts folders, too. */
export interface StateRoom {
  readonly bytes: number
  readonly files: number
}

const ANY_ROOM: StateRoom = { bytes: Number.MAX_SAFE_INTEGER, files: Number.MAX_SAFE_INTEGER }

/** The file being written, at the top. All writes share it, so that the next one replaces a dead agent's. */
const UNFINISHED = 'unfinished.new'

const { EISDIR, ENOENT } = constants.errno

/** The first file makes the folder `root`. */
export function linuxStateFiles(
  native: Pick<Native, 'replaceFile' | 'removeFile'>,
  root: string,
): StateFiles {
  const inFolder = <T>(call: string, path: string, action: (full: string) => T): T => {
    const full = path === '' ? root : `${root}/${path}`
    try {
      return action(full)
    } catch (error) {
      throw fromNodeError(call, full, error)
    }
  }
  const unfinished = `${root}/${UNFINISHED}`
  const replace = (full: string, bytes: Uint8Array) => native.replaceFile(unfinished, full, bytes, 0o600)
  return {
    write: (path, bytes) => {
      const full = `${root}/${path}`
      let result = replace(full, bytes)
      if (result === -ENOENT) {
        inFolder('write', path, () => mkdirSync(dirname(full), { recursive: true, mode: 0o700 }))
        result = replace(full, bytes)
      }
      // The written part takes room.
      if (result < 0) native.removeFile(unfinished)
      checkErrno('write', full, result)
    },
    read: (path) =>
      inFolder('read', path, (full) => absentAs(undefined, () => new Uint8Array(readFileSync(full)))),
    size: (path) => inFolder('look at', path, (full) => statSync(full, { throwIfNoEntry: false })?.size),
    remove: (path) =>
      inFolder('remove', path, (full) => {
        // The top may be a mount point, which stays.
        const removed =
          path === '' ? absentAs([], () => readdirSync(full)).map((name) => `${full}/${name}`) : [full]
        for (const each of removed) removeOne(native, each)
      }),
    list: (folder) =>
      inFolder('list', folder, (full) =>
        absentAs([], () =>
          readdirSync(full)
            .filter((name) => folder !== '' || name !== UNFINISHED)
            .sort(),
        ),
      ),
    room: () =>
      inFolder('look at', '', (full) =>
        absentAs(ANY_ROOM, () => {
          const { bavail, bsize, ffree, files } = statfsSync(full)
          // A file system without a limit of files reports 0.
          return { bytes: bavail * bsize, files: files === 0 ? ANY_ROOM.files : ffree }
        }),
      ),
  }
}

/** Tries unlink(2) first, because most removals are of files. */
function removeOne(native: Pick<Native, 'removeFile'>, path: string): void {
  const result = native.removeFile(path)
  if (result === -EISDIR) rmSync(path, { recursive: true, force: true })
  else if (result !== -ENOENT) checkErrno('remove', path, result)
}

function absentAs<T>(absent: T, read: () => T): T {
  try {
    return read()
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return absent
    throw error
  }
}
