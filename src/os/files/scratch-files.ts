import {
  closeSync,
  constants,
  existsSync,
  fstatSync,
  mkdirSync,
  openSync,
  readdirSync,
  readlinkSync,
  // biome-ignore lint/style/noRestrictedImports: the files are regular ones, in folders of the agent's own.
  readSync,
  rmdirSync,
  rmSync,
  statSync,
  unlinkSync,
  writeFileSync,
} from 'node:fs'
import { constants as system } from 'node:os'
import { AgentError } from '../../base/errors.ts'
import { checkErrno, errnoName, fromNodeError, kernelError, tooLong } from '../errors.ts'
import type { Native } from '../native.ts'
import { fileStatus } from './file-status.ts'
import { MAX_READ_BYTES, type ScratchFiles, type ScratchFolder } from './files.ts'

const { O_DIRECTORY, O_NOFOLLOW, O_RDONLY } = constants
const { EFBIG, ENOENT } = system.errno

type Calls = Pick<Native, 'readText' | 'removeFolder' | 'replaceFile'>

export function linuxScratchFiles(native: Calls): ScratchFiles {
  return {
    readText: async (path, maxBytes = MAX_READ_BYTES) => readWhole(native, path, path, maxBytes),
    readTail: async (path, maxBytes) => onThisThread('read', path, () => readTail(path, maxBytes)),
    readLink: async (path) => onThisThread('readlink', path, () => readlinkSync(path)),
    exists: async (path) => existsSync(path),
    write: async (path, data, { mode = 0o666 } = {}) =>
      onThisThread('write', path, () => writeFileSync(path, data, { mode })),
    replace: async (path, data, mode) => {
      const result = native.replaceFile(`${path}.new`, path, Buffer.from(data), mode)
      checkErrno('write', path, result)
    },
    makeDirectory: async (path, mode) => onThisThread('mkdir', path, () => mkdirSync(path, mode)),
    makeDirectories: async (path, mode = 0o777) =>
      onThisThread('mkdir', path, () => void mkdirSync(path, { recursive: true, mode })),
    stat: async (path) =>
      onThisThread('stat', path, () => {
        const status = statSync(path, { bigint: true, throwIfNoEntry: false })
        return status && fileStatus(status)
      }),
    removeFile: async (path) => onThisThread('unlink', path, () => unlinkSync(path)),
    removeDirectory: async (path) => onThisThread('rmdir', path, () => rmdirSync(path)),
    removeTree: async (path, names) =>
      onThisThread('remove', path, () => {
        if (names !== undefined && isGone(native.removeFolder(path, names))) return
        rmSync(path, { recursive: true, force: true })
      }),
    openFolder: async (path) => openFolder(native, path, path),
  }
}

function isGone(result: number): boolean {
  return result === 0 || result === -ENOENT
}

/** Goes through /proc/self/fd, as a `Folder` does. Error texts call the folder `path`. */
function openFolder(native: Calls, place: string, path: string): ScratchFolder {
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
    open: (name) => on('open', name, (inner) => openFolder(native, inner, `${path}/${name}`)),
    readText: (name, maxBytes) =>
      on('read', name, (inner) => readWhole(native, inner, `${path}/${name}`, maxBytes)),
    removeFile: (name) => on('unlink', name, unlinkSync),
    removeFolder: (name) => on('rmdir', name, rmdirSync),
    close: async () => closeSync(fd),
  }
}

function readWhole(native: Calls, place: string, path: string, maxBytes: number): string {
  const text = native.readText(place, maxBytes)
  if (typeof text === 'string') return text
  if (text === -EFBIG) throw tooLong(path, maxBytes)
  throw kernelError('read', path, errnoName(-text))
}

function readTail(path: string, maxBytes: number): string {
  const fd = openSync(path, O_RDONLY)
  try {
    const { size } = fstatSync(fd)
    const buffer = Buffer.alloc(Math.min(size, maxBytes))
    const length = readSync(fd, buffer, 0, buffer.length, size - buffer.length)
    return buffer.toString('utf8', 0, length)
  } finally {
    closeSync(fd)
  }
}

function onThisThread<T>(call: string, path: string, action: () => T): T {
  try {
    return action()
  } catch (error) {
    throw error instanceof AgentError ? error : fromNodeError(call, path, error)
  }
}
