import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { fromNodeError } from '../errors.ts'
import type { ScratchFiles } from './files.ts'

/** Scratch files whose calls run on the calling thread. */
export function linuxScratchFiles(): ScratchFiles {
  return {
    readText: async (path) => onThisThread('read', path, () => readFileSync(path, 'utf8')),
    write: async (path, data, { mode = 0o666 } = {}) =>
      onThisThread('write', path, () => writeFileSync(path, data, { mode })),
    makeDirectories: async (path, mode = 0o777) =>
      onThisThread('mkdir', path, () => void mkdirSync(path, { recursive: true, mode })),
    removeTree: async (path) =>
      onThisThread('remove', path, () => rmSync(path, { recursive: true, force: true })),
  }
}

function onThisThread<T>(call: string, path: string, action: () => T): T {
  try {
    return action()
  } catch (error) {
    throw fromNodeError(call, path, error)
  }
}
