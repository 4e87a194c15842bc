import { randomBytes } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { constants } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import type { StoredBytes } from '../../../src/base/stored-bytes.ts'
import { linuxFiles } from '../../../src/os/files/linux-files.ts'
import type { Native } from '../../../src/os/native.ts'
import { linuxStreams } from '../../../src/os/streams/linux-streams.ts'
import type { Streams } from '../../../src/os/streams/streams.ts'
import { DataInFile } from '../../support/os/data-in-file.ts'
import { realNative } from '../../support/os/real-native.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

const BEFORE = Buffer.from('before')
const bytes = randomBytes(300_000)

describe('a growing file takes data that is in a file in memory', () => {
  let native: Native
  let streams: Streams
  let data: DataInFile

  beforeEach(async () => {
    native = await realNative()
    streams = linuxStreams(native)
    data = new DataInFile(streams, bytes)
  })

  afterEach(() => data.close())

  /** Returns what the file has then. */
  async function written(
    given: StoredBytes,
    sendFile: Native['sendFile'] = native.sendFile,
  ): Promise<Buffer> {
    const root = temporaryFolder()
    const folder = await linuxFiles({ ...native, sendFile }).openFolder(root)
    const file = await folder.createFile('file')
    try {
      await file.write(BEFORE, 0)
      await file.write(given, BEFORE.length)
      return readFileSync(join(root, 'file'))
    } finally {
      await file.close()
      await folder.close()
    }
  }

  it('in the kernel, and leaves the position of that file', async () => {
    expect((await written(data)).equals(Buffer.concat([BEFORE, bytes]))).toBe(true)
    expect([data.reads, streams.position(data.place.fd)]).toEqual([0, 0])
  })

  it('over what it has there already', async () => {
    const root = temporaryFolder()
    const folder = await linuxFiles(native).openFolder(root)
    const file = await folder.createFile('file')
    await file.write(Buffer.alloc(400_000, 'x'), 0)
    for (let time = 0; time < 2; time++) await file.write(data, 50_000)
    await Promise.all([file.close(), folder.close()])
    const [head, tail] = [Buffer.alloc(50_000, 'x'), Buffer.alloc(50_000, 'x')]
    expect(readFileSync(join(root, 'file')).equals(Buffer.concat([head, bytes, tail]))).toBe(true)
  })

  it.each([0, 1, 100_000])(
    'from memory after the first %i bytes, when the kernel moves no more',
    async (most) => {
      const moved = await written(data, async (source, from, target, to, length) =>
        most === 0
          ? -constants.errno.EINVAL
          : native.sendFile(source, from, target, to, Math.min(length, most)),
      )
      expect(moved.equals(Buffer.concat([BEFORE, bytes]))).toBe(true)
      expect(data.reads).toBe(1)
    },
  )

  it('but not when that file is cut, or closed', async () => {
    const cut = new DataInFile(streams, bytes.subarray(0, 100_000), bytes.length)
    await expect(written(cut)).rejects.toThrow(/^write .*\/file: /)
    cut.close()
    const gone = {
      length: 1,
      place: undefined,
      read: () => {
        throw new Error('the file of the request is closed')
      },
    }
    await expect(written(gone)).rejects.toThrow(/^write .*\/file: the file of the request is closed/)
  })
})
