import { join } from 'node:path'
import { expect, it } from 'vitest'
import type { Disk } from '../../../src/host/root-disk/disk.ts'
import { writeRecord } from '../../../src/host/root-disk/disk-record.ts'
import { DiskWriting } from '../../../src/host/root-disk/disk-writing.ts'
import { parseImageUrl } from '../../../src/host/root-disk/image-url.ts'
import { ROOT_DISK_LIMITS } from '../../../src/host/root-disk/limits.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

it('the check of what an earlier preparation has written ends at a signal', async () => {
  const image = parseImageUrl('http://host/image')
  const stateFile = join(temporaryFolder(), 'record')
  await writeRecord(stateFile, {
    version: 1,
    state: 'unfinished',
    url: image.shown,
    identity: image.identity,
    grows: true,
    isSparse: true,
    position: 2 ** 40,
    crc: 0,
    validator: '"one"',
    totalBytes: undefined,
    bytes: 0,
    sha256: undefined,
  })
  const [giveUp, reason] = [new AbortController(), new Error('enough')]
  let reads = 0
  const disk: Disk = {
    path: '/disk',
    sizeBytes: 2 ** 40,
    hasContent: true,
    read: async (_, bytes) => {
      reads += 1
      if (reads === 2) giveUp.abort(reason)
      if (reads === 10) throw new Error('goes on')
      return Buffer.alloc(bytes)
    },
    write: async () => {},
    cut: async () => {},
    sync: async () => {},
    close: async () => {},
  }
  const writing = new DiskWriting({ image, disk, stateFile, limits: ROOT_DISK_LIMITS, progress: undefined })
  await expect(writing.resume(giveUp.signal)).rejects.toBe(reason)
  expect(reads).toBe(2)
})
