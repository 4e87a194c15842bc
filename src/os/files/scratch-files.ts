import {
  closeSync,
  fstatSync,
  mkdirSync,
  openSync,
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
import { fromNodeError, tooLong } from '../errors.ts'
import { fileStatus } from './file-status.ts'
import { MAX_READ_BYTES, type ScratchFiles } from './files.ts'

/** Scratch files whose calls run on the calling thread. */
export function linuxScratchFiles(): ScratchFiles {
  return {
    readText: async (path, maxBytes = MAX_READ_BYTES) =>
      onThisThread('read', path, () => {
        const { text, size } = readFrom(path, () => 0, maxBytes)
        if (size > maxBytes) throw tooLong(path, maxBytes)
        return text
      }),
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
    removeTree: async (path, names) =>
      onThisThread('remove', path, () => {
        if (names !== undefined && removeFolder(path, names)) return
        rmSync(path, { recursive: true, force: true })
      }),
  }
}

/** Removes a folder with these files in it, or some of them. Returns false when it stays. */
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

/** At most `maxBytes` from a place in a regular file, and the file's size. */
function readFrom(
  path: string,
  placeOf: (sizeBytes: number) => number,
  maxBytes: number,
): { readonly text: string; readonly size: number } {
  const fd = openSync(path, 'r')
  try {
    const { size } = fstatSync(fd)
    // Files of /proc do not tell their size.
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
