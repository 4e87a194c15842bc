import { mkdtempSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { LAYOUT, partitionedImage } from '../../../src/image/formats/partitioned-image.ts'
import { UsageError } from '../../../src/microvm/command-line/usage-error.mjs'
import { checkKernel, rootDiskOf } from '../../../src/microvm/run/boot-files.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

const folder = temporaryFolder()

function imageWith(offset: number, hex: string): string {
  const path = join(mkdtempSync(join(folder, 'image-')), 'image')
  writeFileSync(path, Buffer.concat([Buffer.alloc(offset), Buffer.from(hex, 'hex'), Buffer.alloc(4096)]))
  return path
}

function partitionedWith(offset: number, hex: string, sizeBytes?: number): string {
  const whole = Buffer.alloc(4 << 20)
  whole.set(partitionedImage(4096).head)
  whole.write(hex, LAYOUT.root + offset, 'hex')
  const path = join(mkdtempSync(join(folder, 'image-')), 'image')
  writeFileSync(path, whole.subarray(0, sizeBytes))
  return path
}

describe('checkKernel', () => {
  it('takes a bzImage, and refuses any other file', async () => {
    // The end of the boot sector, and the header's magic after the jump over it.
    await expect(checkKernel(imageWith(0x1fe, '55aaeb6a48647253'))).resolves.toBeUndefined()
    for (const other of [imageWith(0, '7f454c46'), imageWith(0x1fe, '55aa'), imageWith(0x202, '48647253')]) {
      const refused = checkKernel(other)
      await expect(refused).rejects.toThrow(UsageError)
      await expect(refused).rejects.toThrow(`--kernel ${other}: not a Linux kernel for x86, want a bzImage`)
    }
  })
})

describe('rootDiskOf', () => {
  it('detects erofs and ext4 by their magic numbers', async () => {
    expect(await rootDiskOf(imageWith(1024, 'e2e1f5e0'))).toMatchObject({ type: 'erofs' })
    expect(await rootDiskOf(imageWith(1080, '53ef'))).toMatchObject({ type: 'ext4' })
  })

  it('detects the file system of the first partition', async () => {
    const path = partitionedWith(1080, '53ef')
    expect(await rootDiskOf(path)).toEqual({ path, type: 'ext4', partition: 1 })
  })

  it.each([
    ['a program', () => imageWith(0, '7f454c46'), 'unknown file system, want ext4 or erofs'],
    ['an empty file', () => partitionedWith(0, '', 0), 'unknown file system, want ext4 or erofs'],
    ['an empty partition', () => partitionedWith(0, ''), 'partition 1: unknown file system'],
    ['a truncated image', () => partitionedWith(1080, '53ef', 3 << 20), 'partition 1: ends at byte 4194304'],
  ])('refuses %s', async (_name, image, reason) => {
    const refused = rootDiskOf(image())
    await expect(refused).rejects.toThrow(UsageError)
    await expect(refused).rejects.toThrow(reason)
  })
})
