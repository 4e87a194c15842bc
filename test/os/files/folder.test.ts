import { execFileSync } from 'node:child_process'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import type { Files } from '../../../src/os/files/files.ts'
import type { Folder, NewFile } from '../../../src/os/files/folder.ts'
import { linuxFiles } from '../../../src/os/files/linux-files.ts'
import { FakeFiles } from '../../support/fakes/files/fake-files.ts'
import { FakeMounts } from '../../support/fakes/files/fake-mounts.ts'
import { realNative } from '../../support/os/real-native.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

const implementations: readonly (readonly [string, () => Promise<Files>])[] = [
  ['linuxFiles', async () => linuxFiles(await realNative())],
  ['FakeFiles', async () => new FakeFiles(new FakeMounts())],
]

const FILE: NewFile = {
  mode: 0o640,
  uid: process.getuid?.() ?? 0,
  gid: process.getgid?.() ?? 0,
  modifiedNs: 1_700_000_000_500_000_000n,
}

describe.each(implementations)('a folder of %s', (_name, build) => {
  let root: string
  let files: Files
  let folder: Folder

  beforeEach(async () => {
    root = temporaryFolder()
    files = await build()
    await files.makeDirectories(root)
    folder = await files.openFolder(root)
  })

  afterEach(() => folder.close())

  it('cannot be opened through a link, or when it does not exist', async () => {
    await folder.makeFolder('real', 0o755)
    await folder.symlink('real', 'link')
    await expect(files.openFolder(join(root, 'link'))).rejects.toMatchObject({ errno: 'ENOTDIR' })
    await expect(folder.open('link')).rejects.toMatchObject({ errno: 'ENOTDIR' })
    await expect(folder.open('none')).rejects.toThrow(`open ${join(root, 'none')}: ENOENT`)
  })

  it('creates a file with all its attributes, and reads it', async () => {
    await folder.create('file', Buffer.from('content'), FILE)
    const { data, status } = await folder.read('file', 100)
    expect(Buffer.from(data).toString()).toBe('content')
    expect(status).toEqual(await folder.status('file'))
    expect(status).toMatchObject({ ...FILE, kind: 'file', sizeBytes: 7n })
    expect(Buffer.from((await folder.read('file', 3)).data).toString()).toBe('con')
    await expect(folder.create('file', Buffer.from(''), FILE)).rejects.toMatchObject({ errno: 'EEXIST' })
  })

  it('overwrites a file, which keeps its inode even when it becomes shorter', async () => {
    await folder.create('file', Buffer.from('long content'), FILE)
    const before = await folder.status('file')
    await folder.rewrite('file', Buffer.from('short'), { ...FILE, mode: 0o600 })
    const { data, status } = await folder.read('file', 100)
    expect(Buffer.from(data).toString()).toBe('short')
    expect(status).toMatchObject({ inode: before?.inode, mode: 0o600, sizeBytes: 5n })
    expect(status.changedNs).toBeGreaterThan(before?.changedNs ?? 0n)
  })

  it('neither reads nor writes through a link', async () => {
    await folder.create('file', Buffer.from('secret'), FILE)
    await folder.symlink('file', 'link')
    await expect(folder.read('link', 10)).rejects.toMatchObject({ errno: 'EINVAL' })
    await expect(folder.rewrite('link', Buffer.from('x'), FILE)).rejects.toMatchObject({ errno: 'EINVAL' })
    await expect(folder.create('link', Buffer.from('x'), FILE)).rejects.toMatchObject({ errno: 'EEXIST' })
    expect(await folder.readLink('link')).toBe('file')
    expect((await folder.status('link'))?.kind).toBe('symlink')
  })

  it('moves an entry over another one', async () => {
    await folder.makeFolder('staging', 0o700)
    const staging = await folder.open('staging')
    await staging.create('file', Buffer.from('new'), FILE)
    await folder.create('file', Buffer.from('old'), FILE)
    await staging.move('file', folder)
    expect(Buffer.from((await folder.read('file', 10)).data).toString()).toBe('new')
    expect(await staging.names(10)).toEqual([])
    await staging.close()
  })

  it('does not move a directory over one that is not empty', async () => {
    await files.makeDirectories(join(root, 'staging/a'))
    await files.makeDirectories(join(root, 'a/b'))
    const staging = await folder.open('staging')
    await expect(staging.move('a', folder)).rejects.toMatchObject({ errno: 'ENOTEMPTY' })
    await staging.close()
  })

  it('moves an entry to another name', async () => {
    await folder.create('old', Buffer.from('x'), FILE)
    await folder.symlink('nowhere', 'new')
    await folder.move('old', folder, 'new')
    expect(await folder.names(10)).toEqual(['new'])
    expect((await folder.status('new'))?.kind).toBe('file')
  })

  it('opens a directory below it, and follows no link on the way', async () => {
    await files.makeDirectories(join(root, 'a/b/c'))
    await files.symlink('a', join(root, 'link'))
    await files.symlink('b', join(root, 'a/link'))
    const inner = await folder.openBelow('a/b')
    expect(await inner.names(10)).toEqual(['c'])
    await inner.close()
    await expect(folder.openBelow('link/b')).rejects.toMatchObject({ errno: 'ELOOP' })
    await expect(folder.openBelow('a/link/c')).rejects.toMatchObject({ errno: 'ELOOP' })
    await expect(folder.openBelow('a/link')).rejects.toThrow(/: (ELOOP|ENOTDIR)$/)
    await expect(folder.openBelow('a/none/c')).rejects.toThrow(`open ${join(root, 'a/none/c')}: ENOENT`)
    await expect(folder.openBelow('a/../..')).rejects.toMatchObject({ errno: 'EXDEV' })
  })

  it('makes a file that is written in parts, and that only root may use before it has its attributes', async () => {
    const file = await folder.createFile('file')
    expect(await folder.status('file')).toMatchObject({ mode: 0o600, sizeBytes: 0n })
    await file.write(Buffer.from('ten bytes.'), 0)
    await file.write(Buffer.from('more'), 4)
    await file.setAttributes({ ...FILE, mode: 0o4755 })
    await file.close()
    expect(await folder.status('file')).toMatchObject({
      ...FILE,
      mode: 0o4755,
      modifiedNs: expect.anything(),
    })
    expect(Buffer.from((await folder.read('file', 20)).data).toString()).toBe('ten mores.')
    await expect(folder.createFile('file')).rejects.toMatchObject({ errno: 'EEXIST' })
  })

  it('removes a directory only when it is empty', async () => {
    await files.makeDirectories(join(root, 'a/b'))
    await expect(folder.removeFolder('a')).rejects.toMatchObject({ errno: 'ENOTEMPTY' })
    const inner = await folder.open('a')
    await inner.removeFolder('b')
    await inner.close()
    await folder.removeFolder('a')
    await expect(folder.removeFolder('a')).rejects.toMatchObject({ errno: 'ENOENT' })
  })

  it('sets the owner of a link, not of what it leads to', async () => {
    await folder.create('file', Buffer.from(''), FILE)
    await folder.symlink(Buffer.from('file'), 'link')
    await folder.setOwner('link', FILE.uid, FILE.gid)
    expect(await folder.readLink('link')).toBe('file')
    expect(await folder.status('link')).toMatchObject({ kind: 'symlink', uid: FILE.uid })
  })

  it('lists no more names than requested', async () => {
    for (const each of ['a', 'b', 'c']) await folder.symlink('x', each)
    expect([...(await folder.names(10))].sort()).toEqual(['a', 'b', 'c'])
    expect(await folder.names(2)).toHaveLength(2)
  })

  it('removes only what is below a name', async () => {
    await files.makeDirectories(join(root, 'a/b'))
    await folder.create('kept', Buffer.from(''), FILE)
    await files.symlink('../kept', join(root, 'a/link'))
    await folder.remove('a')
    await folder.remove('none')
    expect(await folder.names(10)).toEqual(['kept'])
  })

  it('changes its own attributes', async () => {
    await folder.setAttributes({ ...FILE, mode: 0o2750 })
    expect(await files.lstat(root)).toMatchObject({ mode: 0o2750 })
  })

  it.each(['', '.', '..', 'a/b', 'a\0b'])('refuses the name %j', async (bad) => {
    await expect(folder.status(bad)).rejects.toMatchObject({ errno: 'EINVAL' })
    await expect(folder.create(bad, Buffer.from(''), FILE)).rejects.toMatchObject({ errno: 'EINVAL' })
    await expect(folder.createFile(bad)).rejects.toMatchObject({ errno: 'EINVAL' })
    await expect(folder.removeFolder(bad)).rejects.toMatchObject({ errno: 'EINVAL' })
  })
})

describe('a folder of the kernel', () => {
  let root: string
  let files: Files
  let folder: Folder

  beforeEach(async () => {
    root = temporaryFolder()
    files = linuxFiles(await realNative())
    folder = await files.openFolder(root)
  })

  afterEach(() => folder.close())

  it('stays where it is when its path leads elsewhere', async () => {
    await folder.makeFolder('a', 0o755)
    const inner = await folder.open('a')
    await files.rename(join(root, 'a'), join(root, 'b'))
    await folder.symlink('/', 'a')
    await inner.create('file', Buffer.from(''), FILE)
    await inner.close()
    expect(await files.list(join(root, 'b'))).toEqual(['file'])
  })

  it('neither waits for a fifo nor lists names that are not UTF-8', async () => {
    execFileSync('mkfifo', [join(root, 'fifo')])
    execFileSync('sh', ['-c', `touch '${root}/'$(printf 'x\\377')`])
    await expect(folder.read('fifo', 10)).rejects.toMatchObject({ errno: 'EINVAL' })
    expect(await folder.names(10)).toEqual(['fifo'])
  })
})
