import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { readLines } from '../../../src/os/files/linux-mounts.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

describe('readLines', () => {
  const file = join(temporaryFolder(), 'file')

  it.each([
    ['nothing', '', []],
    ['lines', 'a\nb\n', ['a', 'b']],
    ['a last line without an end', 'a\n\nb', ['a', '', 'b']],
  ])('reads %s', async (_what, text, lines) => {
    writeFileSync(file, text)
    expect(await linesOf(file, 100)).toEqual(lines)
  })

  it('puts lines and characters together that a piece of 64 KiB ends in', async () => {
    const lines = Array.from({ length: 20_000 }, (_, index) => `ä€${index}`)
    writeFileSync(file, lines.join('\n'))
    expect(await linesOf(file, 1_000_000)).toEqual(lines)
  })

  it('reads no more bytes than it may, and says how many', async () => {
    writeFileSync(file, 'x\n'.repeat(100_001))
    await expect(linesOf(file, 200_000)).rejects.toMatchObject({
      code: 'RESOURCE_EXHAUSTED',
      errno: 'EFBIG',
      message: `read ${file}: EFBIG: more than 200000 bytes`,
    })
  })

  it('says why a file cannot be read', async () => {
    await expect(linesOf(`${file}.none`, 1)).rejects.toThrow(`read ${file}.none: ENOENT`)
    await expect(linesOf('/proc/self/mem', 1)).rejects.toThrow('read /proc/self/mem: EIO')
  })
})

async function linesOf(path: string, maxBytes: number): Promise<readonly string[]> {
  const lines: string[] = []
  await readLines(path, maxBytes, (line) => lines.push(line))
  return lines
}
