import { statSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { linuxScratchFiles } from '../../../src/os/files/scratch-files.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

describe('linuxScratchFiles', () => {
  const scratch = linuxScratchFiles()
  const folder = temporaryFolder()

  it('writes, reads and removes files and whole folders', async () => {
    const inner = join(folder, 'a/b')
    await scratch.makeDirectories(inner, 0o700)
    await scratch.write(join(inner, 'file'), 'text', { mode: 0o600 })
    expect(await scratch.readText(join(inner, 'file'))).toBe('text')
    expect([inner, join(inner, 'file')].map((path) => statSync(path).mode & 0o777)).toEqual([0o700, 0o600])
    await scratch.removeTree(join(folder, 'a'))
    await expect(scratch.readText(join(inner, 'file'))).rejects.toMatchObject({ errno: 'ENOENT' })
  })

  it('reads no more than it may, and the end of what is longer', async () => {
    const file = join(folder, 'long')
    await scratch.write(file, `${'x'.repeat(100_000)}end`)
    await expect(scratch.readText(file, 100_002)).rejects.toThrow(
      `read ${file}: EFBIG: more than 100002 bytes`,
    )
    expect(await scratch.readText(file, 100_003)).toHaveLength(100_003)
    expect(await scratch.readTail(file, 4)).toBe('xend')
    expect(await scratch.readTail(file, 1_000_000)).toHaveLength(100_003)
    // A file of /proc does not tell its size.
    expect(await scratch.readText('/proc/sys/kernel/ostype')).toBe('Linux\n')
  })

  it.each([
    ['all of the files that it is told of', ['one', 'two']],
    ['some of them', ['one']],
    ['another file', ['one', 'other']],
    ['a folder', ['one', 'folder/file']],
  ])('removes a folder with %s', async (_what, names) => {
    const path = join(folder, 'run')
    for (const name of names) {
      await scratch.makeDirectories(dirname(join(path, name)))
      await scratch.write(join(path, name), '')
    }
    await scratch.removeTree(path, ['one', 'two'])
    expect(await scratch.stat(path)).toBeUndefined()
  })

  it('tells what is at a path, and renames it', async () => {
    await scratch.write(join(folder, 'new'), 'text')
    await scratch.rename(join(folder, 'new'), join(folder, 'old'))
    expect(await scratch.stat(join(folder, 'new'))).toBeUndefined()
    expect(await scratch.stat(join(folder, 'old'))).toMatchObject({ kind: 'file' })
  })

  it('ignores the removal of a missing file', async () => {
    await expect(scratch.removeTree(join(folder, 'nothing'))).resolves.toBeUndefined()
  })

  it('names the call and the path that failed', async () => {
    const file = join(folder, 'file')
    await scratch.write(file, '')
    const failures = [
      scratch.write(join(folder, 'no/file'), ''),
      scratch.makeDirectories(join(file, 'below')),
    ]
    const errors = (await Promise.allSettled(failures)).map((one) => one.status === 'rejected' && one.reason)
    expect(errors).toMatchObject([
      { message: `write ${folder}/no/file: ENOENT` },
      { message: `mkdir ${file}/below: ENOTDIR` },
    ])
  })
})
