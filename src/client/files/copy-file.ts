import { constants } from 'node:fs'
import { lstat, open, readlink } from 'node:fs/promises'
import { AgentError } from '../../base/errors.ts'
import type { CopyFileRequest } from '../../gen/agent.ts'
import { fileFailure } from './file-failure.ts'
import { kindOf } from './file-kind.ts'

const CHUNK_BYTES = 1 << 20
/** The mode of missing parent folders as shims send it: Go's `FileMode` of `drwxr-x---`. */
const FOLDER_MODE = 0o20_000_000_750

export type CopyRequest = Partial<CopyFileRequest>

/**
 * The requests that copy a file, a link or a folder's entry to `path`. Throws INVALID_ARGUMENT for another kind,
 * FAILED_PRECONDITION for a file that cannot be read, ABORTED for a file that shrinks.
 */
export async function* copyRequests(
  source: string,
  path: string,
): AsyncGenerator<CopyRequest, void, undefined> {
  try {
    yield* requestsOf(source, path)
  } catch (error) {
    if (error instanceof AgentError) throw error
    throw new AgentError('FAILED_PRECONDITION', fileFailure(source, error), { cause: error })
  }
}

async function* requestsOf(source: string, path: string): AsyncGenerator<CopyRequest, void, undefined> {
  const status = await lstat(source)
  const entry = { path, fileMode: status.mode, dirMode: FOLDER_MODE, uid: status.uid, gid: status.gid }
  if (status.isSymbolicLink()) {
    yield { ...entry, data: Buffer.from(await readlink(source, 'buffer')) }
  } else if (status.isDirectory()) {
    yield entry
  } else if (status.isFile()) {
    yield* fileRequests(source, entry)
  } else {
    const text = `${source}: a ${kindOf(status)}, want a file, a folder or a link`
    throw new AgentError('INVALID_ARGUMENT', text)
  }
}

async function* fileRequests(
  source: string,
  entry: CopyRequest,
): AsyncGenerator<CopyRequest, void, undefined> {
  // The path may have become a fifo since `lstat`, and opening a fifo waits for a writer.
  const file = await open(source, constants.O_RDONLY | constants.O_NONBLOCK)
  try {
    const { size } = await file.stat()
    const fileSize = BigInt(size)
    if (size === 0) yield { ...entry, fileSize }
    for (let offset = 0; offset < size; ) {
      const wanted = Math.min(CHUNK_BYTES, size - offset)
      const { buffer, bytesRead } = await file.read(Buffer.alloc(wanted), 0, wanted, offset)
      if (bytesRead === 0)
        throw new AgentError(
          'ABORTED',
          `${source}: shrank from ${size} to ${offset} bytes while it was copied`,
        )
      yield { ...entry, fileSize, offset: BigInt(offset), data: buffer.subarray(0, bytesRead) }
      offset += bytesRead
    }
  } finally {
    await file.close()
  }
}
