import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { beforeEach, describe, expect, it } from 'vitest'
import type { Files } from '../../../src/os/files/files.ts'
import { linuxFiles } from '../../../src/os/files/linux-files.ts'
import type { Native } from '../../../src/os/native.ts'
import { realNative } from '../../support/os/real-native.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

const S_IFBLK = 0o060_000
const S_IFCHR = 0o020_000

describe('linuxFiles.isBlockNodeOf', () => {
  let native: Native
  let files: Files
  let folder: string
  let device: string

  beforeEach(async () => {
    native = await realNative()
    files = linuxFiles(native)
    folder = temporaryFolder()
    device = join(folder, 'device')
    mkdirSync(device)
    await files.write(join(device, 'dev'), '259:1048575\n')
  })

  function node(name: string, type: number, minor: number): string {
    const path = join(folder, name)
    expect(native.makeNode(path, type | 0o600, 259, minor)).toBe(0)
    return path
  }

  it('distinguishes the node of a device from that of another device, and from other files', async () => {
    expect(await files.isBlockNodeOf(node('same', S_IFBLK, 1_048_575), device)).toBe(true)
    expect(await files.isBlockNodeOf(node('other', S_IFBLK, 104_857), device)).toBe(false)
    expect(await files.isBlockNodeOf(node('characters', S_IFCHR, 1_048_575), device)).toBe(false)
    expect(await files.isBlockNodeOf(join(folder, 'none'), device)).toBe(false)
  })

  it('is false for a device that is gone, or whose number differs', async () => {
    const there = node('there', S_IFBLK, 1_048_575)
    for (const said of ['', '259:1048575', '259:10485755\n', `259:1048575\n${'x'.repeat(99)}`]) {
      await files.write(join(device, 'dev'), said)
      expect(await files.isBlockNodeOf(there, device)).toBe(false)
    }
    await files.removeTree(device)
    expect(await files.isBlockNodeOf(there, device)).toBe(false)
  })

  it('throws the kernel’s other errors', async () => {
    const there = node('there', S_IFBLK, 1)
    await expect(files.isBlockNodeOf(`${there}/x`, device)).rejects.toThrow(`stat ${there}/x: ENOTDIR`)
    await files.removeFile(join(device, 'dev'))
    await files.makeDirectory(join(device, 'dev'))
    await expect(files.isBlockNodeOf(there, device)).rejects.toThrow('EISDIR')
  })
})
