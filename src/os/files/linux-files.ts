import type { BigIntStats, Dirent } from 'node:fs'
import { constants } from 'node:os'
import { dirname } from 'node:path/posix'
import { errnoOf } from '../../base/errors.ts'
import { isWithin } from '../../base/paths.ts'
import { checkErrno, errnoName, failed, kernelError, tooLong, tooManyNames, unwrap } from '../errors.ts'
import type { Native } from '../native.ts'
import { type FileStatus, fileStatus } from './file-status.ts'
import { type Files, MAX_NAMES, MAX_READ_BYTES } from './files.ts'
import { openFolder } from './linux-folder.ts'
import * as fs from './node-files.ts'
import { mkdir, stat } from './node-files.ts'
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
    readSmall: joined(async (paths) => {
      const bytes = unwrap('read', `${paths.length} files`, await native.readFiles(paths, SMALL_BYTES))
      return bytes.toString().split('\0')
    }),
    readHead: (path, maxBytes) => readHead(native, path, maxBytes),
    write: async (path, data, { mode = 0o666 } = {}) => {
      const bytes = typeof data === 'string' ? Buffer.from(data) : data
      checkErrno('write', path, await native.writeFile(path, bytes, mode))
    },
    makeDirectories: (path, mode = 0o777) => makeDirectories(path, mode).catch(failed('mkdir', path)),
    makeDirectory: (path, mode = 0o777) => fs.mkdir(path, { mode }).catch(failed('mkdir', path)),
    removeFile: (path) => fs.unlink(path).catch(failed('unlink', path)),
    removeDirectory: (path) => fs.rmdir(path).catch(failed('rmdir', path)),
    removeDirectories: async (paths) => {
      if (paths.length === 0) return new Map()
      const errnos = unwrap('rmdir', `${paths.length} folders`, await native.removeFolders(paths))
      const failures = paths.flatMap((path, index) => {
        const errno = errnos[index] ?? 0
        return errno === 0 ? [] : [[path, kernelError('rmdir', path, errnoName(errno))] as const]
      })
      return new Map(failures)
    },
    removeTree: (path) => removeTree(native, path),
    lstat: (path) => statusOf('lstat', path, fs.lstat(path, { bigint: true })),
    stat: (path) => statusOf('stat', path, fs.stat(path, { bigint: true })),
    list: (path) => listed(path, maxNames, namesOf(path)),
    names: namesOf,
    listFolders: (path) => listed(path, maxNames, foldersOf(path)),
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

function statusOf(call: string, path: string, found: Promise<BigIntStats>): Promise<FileStatus | undefined> {
  return found.then(fileStatus).catch(unless('ENOENT', undefined, failed(call, path)))
}

/** Reads at once for all calls that are made at the same moment, such as for each container. */
function joined(read: Files['readSmall']): Files['readSmall'] {
  let paths: string[] = []
  let trip: Promise<readonly string[]> | undefined
  const begin = async () => {
    await undefined
    const all = paths
    paths = []
    trip = undefined
    return read(all)
  }
  return async (wanted) => {
    if (wanted.length === 0) return []
    const place = paths.length
    // Not `push(...wanted)`, which throws for the stat files of some 120,000 processes.
    paths = [...paths, ...wanted]
    trip ??= begin()
    return (await trip).slice(place, place + wanted.length)
  }
}

/** Sorted, because the kernel lists names in any order; without those that are ''. */
async function listed(path: string, maxNames: number, found: AsyncIterable<string>): Promise<string[]> {
  const names: string[] = []
  for await (const name of found) if (names.push(name) > maxNames) throw tooManyNames(path, maxNames)
  return names.filter((name) => name !== '').sort()
}

async function* namesOf(path: string): AsyncIterable<string> {
  // A process or thread that ends meanwhile has no type. Node's `opendir` then looks for it, and fails the whole batch.
  if (isWithin(path, '/proc')) yield* await fs.readdir(path).catch(unless('ENOENT', [], failed('list', path)))
  else for await (const { name } of entriesOf(path)) yield name
}

/** '' for anything else. */
async function* foldersOf(path: string): AsyncIterable<string> {
  for await (const entry of entriesOf(path)) yield entry.isDirectory() ? entry.name : ''
}

/** Reads some hundred at a time. None when the directory does not exist. */
async function* entriesOf(path: string): AsyncIterable<Dirent> {
  const report = failed('list', path)
  const directory = await fs.opendir(path, { bufferSize: 256 }).catch(unless('ENOENT', undefined, report))
  if (directory === undefined) return
  try {
    yield* directory
  } catch (error) {
    report(error)
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
