import { readFileSync, statSync } from 'node:fs'
import { fileFailure } from '../../client/files/file-failure.ts'
import { UsageError } from '../command.ts'

/** Requests have at most 4 MiB, and their JSON is hardly larger than this. */
export const MAX_INPUT_BYTES = 64 << 20

/** Reads a file or pipe of the command line. Throws {@link UsageError} that names `what` and the path. */
export function readInput(what: string, path: string): Buffer {
  try {
    const status = statSync(path)
    if (!status.isFile() && !status.isFIFO()) throw new Error(`${path}: not a file`)
    if (status.size > MAX_INPUT_BYTES) throw new Error(`${path}: more than ${MAX_INPUT_BYTES} bytes`)
    return readFileSync(path)
  } catch (error) {
    const text = fileFailure(path, error)
    throw new UsageError(what === path ? text : `${what}: ${text}`, { cause: error })
  }
}
