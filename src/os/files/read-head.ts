import { constants } from 'node:fs'
import * as fs from 'node:fs/promises'
import { checkErrno, fromNodeError, kernelError } from '../errors.ts'
import type { Native } from '../native.ts'
import { AT_FDCWD, O_PATH, RESOLVE_NO_SYMLINKS } from '../open-flags.ts'

/**
 * The first bytes of a regular file; see `Files.readHead`. Finds the file before it opens it, because opening a fifo or a
 * device has side effects.
 */
export async function readHead(native: Native, path: string, maxBytes: number): Promise<Uint8Array> {
  const how = { flags: O_PATH, mode: 0, resolve: RESOLVE_NO_SYMLINKS }
  const found = checkErrno('open', path, native.openAt2(AT_FDCWD, path, how))
  try {
    return await readFound(`/proc/self/fd/${found}`, path, maxBytes)
  } finally {
    native.close(found)
  }
}

async function readFound(place: string, path: string, maxBytes: number): Promise<Uint8Array> {
  const failed = (error: unknown) => {
    throw fromNodeError('read', path, error)
  }
  const status = await fs.stat(place).catch(failed)
  if (!status.isFile()) throw kernelError('read', path, status.isDirectory() ? 'EISDIR' : 'EINVAL')
  const file = await fs.open(place, constants.O_RDONLY | constants.O_NONBLOCK).catch(failed)
  try {
    const { buffer, bytesRead } = await file.read(Buffer.alloc(maxBytes), 0, maxBytes, 0).catch(failed)
    return buffer.subarray(0, bytesRead)
  } finally {
    await file.close()
  }
}
