import { constants } from 'node:fs'
import { open, stat } from 'node:fs/promises'
import { fileURLToPath } from 'node:url'
import { AgentError, errnoOf } from '../../base/errors.ts'
import { fromNodeError } from '../../os/errors.ts'
import { ImageChanged, type OpenImage } from './image-source.ts'
import type { ImageUrl } from './image-url.ts'

const READ_BYTES = 1 << 20

/** Opens a regular file of the host. FAILED_PRECONDITION when it is the disk itself. */
export function fileSource({ url, shown }: ImageUrl, disk: string): OpenImage {
  const path = fileURLToPath(url)
  return async (resumption) => {
    // O_NONBLOCK, because the opening of a fifo waits for its other end.
    const file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK).catch((error: unknown) => {
      if (errnoOf(error) === 'ENOENT') throw new AgentError('NOT_FOUND', `${shown}: does not exist`)
      throw fromNodeError('open', shown, error)
    })
    try {
      const status = await file.stat({ bigint: true })
      const target = await stat(disk, { bigint: true })
      if (!status.isFile()) throw new AgentError('FAILED_PRECONDITION', `${shown}: is not a regular file`)
      if (status.dev === target.dev && status.ino === target.ino) {
        throw new AgentError('FAILED_PRECONDITION', `${shown}: is the disk itself`)
      }
      const validator = `${status.dev}:${status.ino} ${status.size} ${status.mtimeNs}`
      if (resumption !== undefined && resumption.validator !== validator)
        throw new ImageChanged('has changed')
      const body = file.createReadStream({ start: resumption?.position ?? 0, highWaterMark: READ_BYTES })
      return { body, totalBytes: Number(status.size), validator }
    } catch (error) {
      await file.close()
      throw error
    }
  }
}
