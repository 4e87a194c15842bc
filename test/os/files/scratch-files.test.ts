import { execFileSync } from 'node:child_process'
import { existsSync, statSync, symlinkSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { linuxScratchFiles } from '../../../src/os/files/scratch-files.ts'
import { FakeFiles } from '../../support/fakes/files/fake-files.ts'
import { FakeMounts } from '../../support/fakes/files/fake-mounts.ts'
import { realNative } from '../../support/os/real-native.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

const native = await realNative()

describe('linuxScratchFiles', () => {
  const scratch = linuxScratchFiles(native)
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
    // A file of /proc has no known size.
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

  it('replaces a file whole, and reports what is at a path', async () => {
    const file = join(folder, 'config.json')
    await scratch.replace(file, 'long text', 0o600)
    await scratch.replace(file, 'text', 0o600)
    expect(await scratch.readText(file)).toBe('text')
    expect(await scratch.stat(file)).toMatchObject({ kind: 'file', mode: 0o600 })
    expect(await scratch.stat(`${file}.new`)).toBeUndefined()
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
      scratch.makeDirectory(folder, 0o700),
      scratch.replace(join(folder, 'no/file'), '', 0o600),
      scratch.readText(folder),
    ]
    const errors = (await Promise.allSettled(failures)).map((one) => one.status === 'rejected' && one.reason)
    expect(errors).toMatchObject([
      { message: `write ${folder}/no/file: ENOENT` },
      { message: `mkdir ${file}/below: ENOTDIR` },
      { message: `mkdir ${folder}: EEXIST` },
      { message: `write ${folder}/no/file: ENOENT` },
      { message: `read ${folder}: EISDIR` },
    ])
  })
})

const implementations = [
  ['linuxScratchFiles', () => ({ scratch: linuxScratchFiles(native), files: undefined })],
  ['FakeFiles', () => sameFiles(new FakeFiles(new FakeMounts()))],
] as const

function sameFiles(files: FakeFiles) {
  return { scratch: files, files }
}

describe.each(implementations)('an open folder of %s', (_name, build) => {
  const { scratch, files } = build()
  const root = temporaryFolder()
  const link = (target: string, path: string) =>
    files === undefined ? symlinkSync(target, path) : files.symlink(target, path)
  const has = (path: string) => (files === undefined ? existsSync(path) : files.has(path))

  it('lists, reads and removes what is in it', async () => {
    await scratch.makeDirectories(join(root, 'c/inner'))
    await scratch.write(join(root, 'c/file'), 'text')
    const folder = await scratch.openFolder(root)
    const inner = await folder.open('c')
    expect((await inner.names(10)).toSorted()).toEqual(['file', 'inner'])
    expect(await inner.names(1)).toHaveLength(1)
    expect(await inner.readText('file', 4)).toBe('text')
    await expect(inner.readText('file', 3)).rejects.toThrow(`read ${root}/c/file: EFBIG`)
    await expect(inner.readText('inner', 3)).rejects.toThrow(/: E(ISDIR|INVAL)$/)
    await expect(folder.removeFolder('c')).rejects.toThrow(`rmdir ${root}/c: ENOTEMPTY`)
    await inner.removeFile('file')
    await expect(inner.removeFile('inner')).rejects.toThrow(`unlink ${root}/c/inner: EISDIR`)
    await inner.removeFolder('inner')
    await inner.close()
    await folder.removeFolder('c')
    expect(await folder.names(10)).toEqual([])
    await folder.close()
  })

  it('leads nowhere else', async () => {
    await scratch.makeDirectories(join(root, 'other'))
    await scratch.write(join(root, 'other/file'), 'text')
    await scratch.makeDirectories(join(root, 'own'))
    await link('../other', join(root, 'own/folder'))
    await link('../other/file', join(root, 'own/file'))
    await link('other', join(root, 'linked'))
    await expect(scratch.openFolder(join(root, 'linked'))).rejects.toMatchObject({ errno: 'ENOTDIR' })
    const own = await scratch.openFolder(join(root, 'own'))
    await expect(own.open('folder')).rejects.toMatchObject({ errno: 'ENOTDIR' })
    await expect(own.readText('file', 9)).rejects.toThrow(/: E(LOOP|INVAL)$/)
    for (const name of ['', '.', '..', '../other/file', 'a\0b']) {
      await expect(own.open(name)).rejects.toMatchObject({ errno: 'EINVAL' })
      await expect(own.readText(name, 9)).rejects.toMatchObject({ errno: 'EINVAL' })
      await expect(own.removeFile(name)).rejects.toMatchObject({ errno: 'EINVAL' })
      await expect(own.removeFolder(name)).rejects.toMatchObject({ errno: 'EINVAL' })
    }
    await own.removeFile('file')
    await own.removeFile('folder')
    await own.close()
    expect(has(join(root, 'other/file'))).toBe(true)
  })

  it('reads no fifo', async () => {
    const path = join(root, 'fifo')
    if (files === undefined) execFileSync('mkfifo', [path])
    else await files.makeSpecial(path, { kind: 'fifo' })
    const folder = await scratch.openFolder(root)
    await expect(folder.readText('fifo', 9)).rejects.toMatchObject({ errno: 'EINVAL' })
    await folder.close()
  })
})
