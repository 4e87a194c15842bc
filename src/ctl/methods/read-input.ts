import { readFileSync, statSync } from 'node:fs'
import { messageOf } from '../../base/errors.ts'
import { UsageError } from '../command.ts'

/** No request is larger than 4 MiB, and its JSON hardly larger than this. */
export const MAX_INPUT_BYTES = 64 << 20

/** Reads a file or a pipe that the command line names. Throws {@link UsageError} that begins with `what`. */
export function readInput(what: string, path: string): Buffer {
  try {
    const status = statSync(path)
    if (!status.isFile() && !status.isFIFO()) throw new Error(`${path}: not a file`)
    if (status.size > MAX_INPUT_BYTES) throw new Error(`${path}: more than ${MAX_INPUT_BYTES} bytes`)
    return readFileSync(path)
  } catch (error) {
    throw new UsageError(`${what}: ${messageOf(error)}`, { cause: error })
  }
}
