import { randomBytes } from 'node:crypto'
import { rmSync, writeFileSync } from 'node:fs'
import { constants } from 'node:os'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { realNative } from '../../support/os/real-native.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

const native = await realNative()
const { ENOENT, EINVAL } = constants.errno

function fileWith(content: Uint8Array): string {
  const path = join(temporaryFolder(), 'file')
  writeFileSync(path, content)
  return path
}

describe('a mapped file', () => {
  it('has all bytes, also once its name is gone', () => {
    const content = randomBytes(3 * 4096 + 7)
    const path = fileWith(content)
    const [text, bytes] = [native.mappedText(path), native.mappedBytes(path)]
    rmSync(path)
    expect(text).toBe(content.toString('latin1'))
    expect(bytes).toEqual(content)
  })

  it('is refused when it is not there, is empty or is a folder', () => {
    const folder = temporaryFolder()
    for (const [path, errno] of [
      [join(folder, 'none'), ENOENT],
      [fileWith(Buffer.alloc(0)), EINVAL],
    ] as const) {
      expect(native.mappedText(path)).toBe(-errno)
      expect(native.mappedBytes(path)).toBe(-errno)
    }
    expect(native.mappedText(folder)).toBeLessThan(0)
  })
})
