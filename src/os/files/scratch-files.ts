import {
  closeSync,
  constants,
  fstatSync,
  mkdirSync,
  openSync,
  readdirSync,
  // biome-ignore lint/style/noRestrictedImports: the files are regular ones, in folders of the agent's own.
  readSync,
  renameSync,
  rmdirSync,
  rmSync,
  statSync,
  unlinkSync,
  writeFileSync,
} from 'node:fs'
import { AgentError, errnoOf } from '../../base/errors.ts'
import { fromNodeError, kernelError, tooLong } from '../errors.ts'
import { fileStatus } from './file-status.ts'
import { MAX_READ_BYTES, type ScratchFiles, type ScratchFolder } from './files.ts'

const { O_DIRECTORY, O_NOFOLLOW, O_NONBLOCK, O_RDONLY } = constants

export function linuxScratchFiles(): ScratchFiles {
  return {
    readText: async (path, maxBytes = MAX_READ_BYTES) =>
      onThisThread('read', path, () => readWhole(path, path, maxBytes)),
    readTail: async (path, maxBytes) =>
      onThisThread('read', path, () => readFrom(path, (size) => Math.max(0, size - maxBytes), maxBytes).text),
    write: async (path, data, { mode = 0o666 } = {}) =>
      onThisThread('write', path, () => writeFileSync(path, data, { mode })),
    makeDirectories: async (path, mode = 0o777) =>
      onThisThread('mkdir', path, () => void mkdirSync(path, { recursive: true, mode })),
    stat: async (path) =>
      onThisThread('stat', path, () => {
        const status = statSync(path, { bigint: true, throwIfNoEntry: false })
        return status && fileStatus(status)
      }),
    rename: async (from, to) => onThisThread('rename', `${from} to ${to}`, () => renameSync(from, to)),
    removeFile: async (path) => onThisThread('unlink', path, () => unlinkSync(path)),
    removeDirectory: async (path) => onThisThread('rmdir', path, () => rmdirSync(path)),
    removeTree: async (path, names) =>
      onThisThread('remove', path, () => {
        if (names !== undefined && removeFolder(path, names)) return
        rmSync(path, { recursive: true, force: true })
      }),
    openFolder: async (path) => openFolder(path, path),
  }
}

/** Returns false when the folder stays. */
function removeFolder(path: string, names: readonly string[]): boolean {
  try {
    for (const name of names) unlessAbsent(() => unlinkSync(`${path}/${name}`))
    unlessAbsent(() => rmdirSync(path))
    return true
  } catch {
    return false
  }
}

function unlessAbsent(remove: () => void): void {
  try {
    remove()
  } catch (error) {
    if (errnoOf(error) !== 'ENOENT') throw error
  }
}

/** Goes through /proc/self/fd, as a `Folder` does. Error texts call the folder `path`. */
function openFolder(place: string, path: string): ScratchFolder {
  const fd = onThisThread('open', path, () => openSync(place, O_RDONLY | O_DIRECTORY | O_NOFOLLOW))
  const itself = `/proc/self/fd/${fd}`
  const on = async <T>(call: string, name: string, action: (place: string) => T): Promise<T> => {
    if (name === '.' || name === '..' || !/^[^/\0]+$/.test(name)) {
      throw kernelError(call, `${path}/${JSON.stringify(name)}`, 'EINVAL')
    }
    return onThisThread(call, `${path}/${name}`, () => action(`${itself}/${name}`))
  }
  return {
    names: async (atMost) => onThisThread('list', path, () => readdirSync(itself).slice(0, atMost)),
    open: (name) => on('open', name, (inner) => openFolder(inner, `${path}/${name}`)),
    readText: (name, maxBytes) =>
      on('read', name, (inner) => {
        return readWhole(inner, `${path}/${name}`, maxBytes, O_RDONLY | O_NOFOLLOW | O_NONBLOCK)
      }),
    removeFile: (name) => on('unlink', name, unlinkSync),
    removeFolder: (name) => on('rmdir', name, rmdirSync),
    close: async () => closeSync(fd),
  }
}

function readWhole(place: string, path: string, maxBytes: number, flags = O_RDONLY): string {
  const { text, size } = readFrom(place, () => 0, maxBytes, flags)
  if (size > maxBytes) throw tooLong(path, maxBytes)
  return text
}

function readFrom(
  path: string,
  placeOf: (sizeBytes: number) => number,
  maxBytes: number,
  flags = O_RDONLY,
): { readonly text: string; readonly size: number } {
  const fd = openSync(path, flags)
  try {
    const status = fstatSync(fd)
    if (!status.isFile()) throw kernelError('read', path, status.isDirectory() ? 'EISDIR' : 'EINVAL')
    const { size } = status
    // Files of /proc report no size.
    const buffer = Buffer.alloc(size === 0 ? PROC_FILE_BYTES : Math.min(size, maxBytes))
    const length = readSync(fd, buffer, 0, buffer.length, placeOf(size))
    return { text: buffer.toString('utf8', 0, length), size }
  } finally {
    closeSync(fd)
  }
}

const PROC_FILE_BYTES = 16 * 1024

function onThisThread<T>(call: string, path: string, action: () => T): T {
  try {
    return action()
  } catch (error) {
    throw error instanceof AgentError ? error : fromNodeError(call, path, error)
  }
}
