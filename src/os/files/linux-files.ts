import type { Dirent } from 'node:fs'
import * as fs from 'node:fs/promises'
import { mkdir, stat } from 'node:fs/promises'
import { constants } from 'node:os'
import { dirname } from 'node:path/posix'
import { errnoOf } from '../../base/errors.ts'
import { isWithin } from '../../base/paths.ts'
import { checkErrno, failed, tooLong, tooManyNames, unwrap } from '../errors.ts'
import type { Native } from '../native.ts'
import { fileStatus } from './file-status.ts'
import { type Files, MAX_NAMES, MAX_READ_BYTES } from './files.ts'
import { openFolder } from './linux-folder.ts'
import { readHead } from './read-head.ts'
import { removeTree } from './remove-tree.ts'

const SMALL_BYTES = 4096

/** On libuv's pool, by the addon where node:fs would make several trips. `isBlockNodeOf` runs on the calling thread. */
export function linuxFiles(native: Native, maxNames = MAX_NAMES): Files {
  const readBytes = async (path: string, maxBytes = MAX_READ_BYTES) => {
    const result = await native.readFile(path, maxBytes)
    if (result === -constants.errno.EFBIG) throw tooLong(path, maxBytes)
    return unwrap('read', path, result)
  }
  return {
    readText: async (path, maxBytes) => (await readBytes(path, maxBytes)).toString(),
    readBytes,
    readSmall: async (paths) => {
      if (paths.length === 0) return []
      const bytes = unwrap('read', `${paths.length} files`, await native.readFiles(paths, SMALL_BYTES))
      return bytes.toString().split('\0').slice(0, paths.length)
    },
    readHead: (path, maxBytes) => readHead(native, path, maxBytes),
    write: async (path, data, { mode = 0o666 } = {}) => {
      const bytes = typeof data === 'string' ? Buffer.from(data) : data
      checkErrno('write', path, await native.writeFile(path, bytes, mode))
    },
    makeDirectories: (path, mode = 0o777) => makeDirectories(path, mode).catch(failed('mkdir', path)),
    makeDirectory: (path, mode = 0o777) => fs.mkdir(path, { mode }).catch(failed('mkdir', path)),
    removeFile: (path) => fs.unlink(path).catch(failed('unlink', path)),
    removeDirectory: (path) => fs.rmdir(path).catch(failed('rmdir', path)),
    removeTree: (path) => removeTree(native, path),
    lstat: (path) =>
      fs
        .lstat(path, { bigint: true })
        .then(fileStatus)
        .catch(unless('ENOENT', undefined, failed('lstat', path))),
    stat: (path) =>
      fs
        .stat(path, { bigint: true })
        .then(fileStatus)
        .catch(unless('ENOENT', undefined, failed('stat', path))),
    list: (path) => listed(path, maxNames, () => true),
    names: (path) => namesOf(path),
    listFolders: (path) => listed(path, maxNames, (entry) => entry.isDirectory()),
    isReachedWithoutLinks: async (path) => (await native.reachWithoutLinks(path)) === 0,
    isBlockNodeOf: async (node, device) =>
      checkErrno('stat', node, native.isBlockNodeOf(node, `${device}/dev`)) === 1,
    readLink: (path) => fs.readlink(path).catch(failed('readlink', path)),
    symlink: (target, path) => fs.symlink(target, path).catch(failed('symlink', path)),
    rename: (from, to) => fs.rename(from, to).catch(failed('rename', `${from} to ${to}`)),
    chmod: (path, mode) => fs.chmod(path, mode).catch(failed('chmod', path)),
    chown: (path, uid, gid) => fs.chown(path, uid, gid).catch(failed('chown', path)),
    openFolder: (path) => openFolder(native, path),
  }
}

/** Sorted, because the kernel lists names in any order. */
async function listed(
  path: string,
  maxNames: number,
  wanted: (entry: Dirent) => boolean,
): Promise<readonly string[]> {
  const names: string[] = []
  let count = 0
  for await (const entry of entriesOf(path)) {
    if (++count > maxNames) throw tooManyNames(path, maxNames)
    if (wanted(entry)) names.push(entry.name)
  }
  return names.sort()
}

async function* namesOf(path: string): AsyncIterable<string> {
  for await (const { name } of entriesOf(path)) yield name
}

/** Reads some hundred at a time. None when the directory does not exist. */
async function* entriesOf(path: string): AsyncIterable<Dirent> {
  const report = failed('list', path)
  // A process or thread that ends meanwhile has no type. Node then looks for it, and fails the whole batch.
  const [bufferSize, unlessEnded] = isWithin(path, '/proc')
    ? ([1, unless('ENOENT', undefined, report)] as const)
    : ([256, report] as const)
  const directory = await fs.opendir(path, { bufferSize }).catch(unless('ENOENT', undefined, report))
  if (directory === undefined) return
  try {
    for (;;) {
      const entry = await directory.read().catch(unlessEnded)
      if (entry === null) return
      if (entry !== undefined) yield entry
    }
  } finally {
    await directory.close()
  }
}

function unless<T>(errno: string, value: T, otherwise: (error: unknown) => never): (error: unknown) => T {
  return (error) => (errnoOf(error) === errno ? value : otherwise(error))
}

/** mkdir -p. Node's own loops for ever when the kernel answers ENOENT although the parent exists (below /proc). */
async function makeDirectories(path: string, mode: number): Promise<void> {
  try {
    await makeIfMissing(path, mode)
  } catch (error) {
    const parent = dirname(path)
    if (errnoOf(error) !== 'ENOENT' || parent === path) throw error
    await makeDirectories(parent, mode)
    await makeIfMissing(path, mode)
  }
}

/** A directory, or a link to one, may exist. */
async function makeIfMissing(path: string, mode: number): Promise<void> {
  try {
    await mkdir(path, { mode })
  } catch (error) {
    if (errnoOf(error) !== 'EEXIST' || !(await stat(path)).isDirectory()) throw error
  }
}
