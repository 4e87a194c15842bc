import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, describe, expect, it } from 'vitest'
import { UsageError } from '../../../src/microvm/command-line/parse.mjs'
import { fileSystemOf } from '../../../src/microvm/run/boot-files.ts'

const folder = mkdtempSync(join(tmpdir(), 'boot-files-test-'))
afterAll(() => rmSync(folder, { recursive: true }))

/** An image with these bytes at this offset. */
function imageWith(offset: number, hex: string): string {
  const path = join(mkdtempSync(join(folder, 'image-')), 'image')
  writeFileSync(path, Buffer.concat([Buffer.alloc(offset), Buffer.from(hex, 'hex'), Buffer.alloc(4096)]))
  return path
}

describe('fileSystemOf', () => {
  it('detects erofs and ext4 by their magic numbers', async () => {
    expect(await fileSystemOf(imageWith(1024, 'e2e1f5e0'))).toBe('erofs')
    expect(await fileSystemOf(imageWith(1080, '53ef'))).toBe('ext4')
  })

  it('refuses a file system from which the guest cannot boot', async () => {
    await expect(fileSystemOf(imageWith(0, '7f454c46'))).rejects.toThrow(UsageError)
  })
})
