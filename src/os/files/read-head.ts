import { constants } from 'node:fs'
import { checkErrno, failed, kernelError } from '../errors.ts'
import type { Native } from '../native.ts'
import { AT_FDCWD, O_PATH, RESOLVE_NO_SYMLINKS } from '../open-flags.ts'
import * as fs from './node-files.ts'

/** See `Files.readHead`. Finds the file before it opens it, because opening a fifo or a device has side effects. */
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
  const status = await fs.stat(place).catch(failed('read', path))
  if (!status.isFile()) throw kernelError('read', path, status.isDirectory() ? 'EISDIR' : 'EINVAL')
  return readPart(place, 0, maxBytes, path)
}

/** One read(2) of a regular file or a block device. Error texts call it `subject`. */
export async function readPart(
  path: string,
  offsetBytes: number,
  lengthBytes: number,
  subject = path,
): Promise<Buffer> {
  const report = failed('read', subject)
  const file = await fs.open(path, constants.O_RDONLY | constants.O_NONBLOCK).catch(report)
  try {
    const bytes = Buffer.alloc(lengthBytes)
    const { bytesRead } = await file.read(bytes, 0, lengthBytes, offsetBytes).catch(report)
    return bytes.subarray(0, bytesRead)
  } finally {
    await file.close()
  }
}
