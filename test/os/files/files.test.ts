import { execFileSync } from 'node:child_process'
import { Dir, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it, vi } from 'vitest'
import { deviceNumbers } from '../../../src/os/files/file-status.ts'
import type { Files } from '../../../src/os/files/files.ts'
import { linuxFiles } from '../../../src/os/files/linux-files.ts'
import { FakeFiles } from '../../support/fakes/files/fake-files.ts'
import { FakeMounts } from '../../support/fakes/files/fake-mounts.ts'
import { realNative } from '../../support/os/real-native.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

const folder = temporaryFolder()

const implementations: readonly (readonly [string, () => Promise<Files>])[] = [
  ['linuxFiles', async () => linuxFiles(await realNative())],
  ['FakeFiles', async () => new FakeFiles(new FakeMounts())],
]

let lastRoot = 0
async function workIn(build: () => Promise<Files>) {
  const files = await build()
  lastRoot += 1
  const root = join(folder, String(lastRoot))
  await files.makeDirectories(root)
  return { files, root }
}

describe.each(implementations)('%s', (_name, build) => {
  it('reads no file whole that is longer than its reader takes, by default 1 MiB', async () => {
    const { files, root } = await workIn(build)
    await files.write(`${root}/a`, 'x'.repeat(2 ** 20 + 1))
    const refused = { code: 'RESOURCE_EXHAUSTED', errno: 'EFBIG' }
    const message = `read ${root}/a: EFBIG: more than 1048576 bytes`
    await expect(files.readText(`${root}/a`)).rejects.toMatchObject({ ...refused, message })
    await expect(files.readBytes(`${root}/a`, 2 ** 20)).rejects.toMatchObject(refused)
    expect(await files.readBytes(`${root}/a`, 2 ** 20 + 1)).toHaveLength(2 ** 20 + 1)
  })

  it('reads the head of a regular file', async () => {
    const { files, root } = await workIn(build)
    await files.write(`${root}/a`, 'something long')
    expect(Buffer.from(await files.readHead(`${root}/a`, 4)).toString()).toBe('some')
    expect(Buffer.from(await files.readHead(`${root}/a`, 100)).toString()).toBe('something long')
  })

  it.each([0, 1, 4095, 4096, 4097, 3_000_000])(
    'reads back the %i bytes that it wrote over others',
    async (size) => {
      const { files, root } = await workIn(build)
      const bytes = Buffer.alloc(size, 'xyz')
      await files.write(`${root}/a`, 'what was there')
      await files.write(`${root}/a`, bytes)
      expect(bytes.equals(await files.readBytes(`${root}/a`, size))).toBe(true)
      expect(await files.readText(`${root}/a`, size)).toBe(bytes.toString())
    },
  )

  it('reads many small files at once, and leaves those empty that are missing, long or no files', async () => {
    const { files, root } = await workIn(build)
    await files.write(`${root}/a`, 'some text\n')
    await files.write(`${root}/full`, 'x'.repeat(4096))
    await files.write(`${root}/long`, 'x'.repeat(4097))
    const paths = ['a', 'none', 'full', 'long', '', 'a'].map((name) => `${root}/${name}`)
    expect(await files.readSmall(paths)).toEqual(['some text\n', '', 'x'.repeat(4096), '', '', 'some text\n'])
    const many = Array.from({ length: 1000 }, () => `${root}/full`)
    expect(new Set(await files.readSmall(many))).toEqual(new Set(['x'.repeat(4096)]))
    expect(await files.readSmall([])).toEqual([])
  })

  it('names a path that cannot be read or written', async () => {
    const { files, root } = await workIn(build)
    await expect(files.readText(`${root}/none`)).rejects.toThrow(`read ${root}/none: ENOENT`)
    await expect(files.readBytes(root)).rejects.toThrow(`read ${root}: EISDIR`)
    await expect(files.write(`${root}/none/a`, 'x')).rejects.toThrow(`write ${root}/none/a: ENOENT`)
  })

  it('knows whether a path has links', async () => {
    const { files, root } = await workIn(build)
    await files.makeDirectories(`${root}/folder/inner`)
    await files.write(`${root}/folder/file`, '')
    await files.symlink('folder', `${root}/link`)
    await files.symlink('nothing', `${root}/dangling`)
    const reached = (path: string) => files.isReachedWithoutLinks(`${root}/${path}`)
    for (const path of ['folder', 'folder/inner', 'folder/file']) expect(await reached(path)).toBe(true)
    for (const path of ['link', 'link/inner', 'link/file', 'dangling', 'none', 'folder/file/none'])
      expect(await reached(path)).toBe(false)
  })

  it('compares the numbers of a block device node with those of sysfs', async () => {
    const { files, root } = await workIn(build)
    const device = (numbers: string) => `${root}/${numbers}`
    for (const [folder, said] of [
      ['none', undefined],
      ['other', '7:1\n'],
      ['odd', ''],
      ['long', `7:0${' '.repeat(99)}`],
    ] as const) {
      await files.makeDirectories(device(folder))
      if (said !== undefined) await files.write(`${device(folder)}/dev`, said)
      expect(await files.isBlockNodeOf('/dev/null', device(folder))).toBe(false)
    }
    expect(await files.isBlockNodeOf(`${root}/none/node`, device('other'))).toBe(false)
  })

  it('lists the folders of a folder without links to folders', async () => {
    const { files, root } = await workIn(build)
    await files.makeDirectories(`${root}/folder/inner`)
    await files.symlink('folder', `${root}/link`)
    await files.write(`${root}/file`, '')
    expect(await files.listFolders(root)).toEqual(['folder'])
    expect(await files.listFolders(`${root}/none`)).toEqual([])
  })

  it('reads no head through a link, of a directory, or of nothing', async () => {
    const { files, root } = await workIn(build)
    await files.makeDirectories(`${root}/folder`)
    await files.write(`${root}/folder/a`, 'x')
    await files.symlink('folder', `${root}/link`)
    await files.symlink('folder/a', `${root}/last`)
    for (const [path, errno] of [
      [`${root}/link/a`, 'ELOOP'],
      [`${root}/last`, 'ELOOP'],
      [`${root}/folder`, 'EISDIR'],
      [`${root}/nothing`, 'ENOENT'],
    ] as const) {
      await expect(files.readHead(path, 10), path).rejects.toMatchObject({ errno })
    }
  })

  it('makes all directories of a path and keeps existing ones', async () => {
    const { files, root } = await workIn(build)
    await files.makeDirectories(`${root}/a/b/c`, 0o750)
    await files.write(`${root}/a/b/c/kept`, 'x')
    await files.makeDirectories(`${root}/a/b/c`)
    expect(await files.readText(`${root}/a/b/c/kept`)).toBe('x')
    expect((await files.stat(`${root}/a/b`))?.mode).toBe(0o750)
    await expect(files.makeDirectories(`${root}/a/b/c/kept`)).rejects.toMatchObject({ errno: 'EEXIST' })
  })

  it('writes, truncates and reads files', async () => {
    const { files, root } = await workIn(build)
    await files.write(`${root}/a`, 'something long', { mode: 0o600 })
    await files.write(`${root}/a`, Buffer.from('short'), { mode: 0o644 })
    expect(await files.readText(`${root}/a`)).toBe('short')
    expect(await files.lstat(`${root}/a`)).toMatchObject({
      kind: 'file',
      mode: 0o600,
      sizeBytes: 5n,
      major: 0,
    })
  })

  it('names call, path and errno of a failure', async () => {
    const { files, root } = await workIn(build)
    await files.write(`${root}/file`, '')
    await expect(files.readText(`${root}/none`)).rejects.toThrow(`read ${root}/none: ENOENT`)
    await expect(files.write(`${root}/no/file`, '')).rejects.toMatchObject({
      errno: 'ENOENT',
      code: 'INTERNAL',
    })
    await expect(files.list(`${root}/file`)).rejects.toThrow(`list ${root}/file: ENOTDIR`)
    await expect(files.removeFile(`${root}/none`)).rejects.toThrow(`unlink ${root}/none: ENOENT`)
  })

  it('reads the status of a link or of its target', async () => {
    const { files, root } = await workIn(build)
    await files.makeDirectory(`${root}/directory`, 0o700)
    await files.symlink('directory', `${root}/link`)
    expect(await files.stat(`${root}/link`)).toMatchObject({ kind: 'directory', mode: 0o700 })
    expect((await files.lstat(`${root}/link`))?.kind).toBe('symlink')
    expect(await files.readLink(`${root}/link`)).toBe('directory')
    expect(await files.stat(`${root}/none`)).toBeUndefined()
    await files.symlink('nowhere', `${root}/dangling`)
    expect(await files.stat(`${root}/dangling`)).toBeUndefined()
    expect((await files.lstat(`${root}/dangling`))?.kind).toBe('symlink')
  })

  it('makes directories and keeps existing ones', async () => {
    const { files, root } = await workIn(build)
    await files.makeDirectories(`${root}/a/b/c`)
    await files.makeDirectories(`${root}/a/b`)
    await expect(files.makeDirectory(`${root}/a`)).rejects.toMatchObject({ errno: 'EEXIST' })
    expect(await files.list(`${root}/a/b`)).toEqual(['c'])
    expect(await files.list(`${root}/none`)).toEqual([])
    await expect(files.removeDirectory(`${root}/a/b`)).rejects.toMatchObject({ errno: 'ENOTEMPTY' })
    await files.removeDirectory(`${root}/a/b/c`)
    expect(await files.list(`${root}/a/b`)).toEqual([])
  })

  it('removes several directories, and says which stay and why', async () => {
    const { files, root } = await workIn(build)
    for (const name of ['full/file', 'first', 'last']) await files.makeDirectories(`${root}/${name}`)
    const paths = ['first', 'none', 'full', 'last'].map((name) => `${root}/${name}`)
    const failures = [...(await files.removeDirectories(paths)).values()].map(({ message }) => message)
    expect(failures).toEqual([`rmdir ${root}/none: ENOENT`, `rmdir ${root}/full: ENOTEMPTY`])
    expect(await files.list(root)).toEqual(['full'])
    expect((await files.removeDirectories([])).size).toBe(0)
  })

  it('renames over an existing file', async () => {
    const { files, root } = await workIn(build)
    await files.write(`${root}/new`, 'new')
    await files.write(`${root}/old`, 'old')
    await files.rename(`${root}/new`, `${root}/old`)
    expect(await files.readText(`${root}/old`)).toBe('new')
    expect(await files.list(root)).toEqual(['old'])
  })

  it('removes a tree, but nothing that a link in it points to', async () => {
    const { files, root } = await workIn(build)
    await files.makeDirectories(`${root}/kept`)
    await files.write(`${root}/kept/file`, 'kept')
    await files.makeDirectories(`${root}/tree/a/b`)
    await files.write(`${root}/tree/a/file`, '')
    await files.symlink(`${root}/kept`, `${root}/tree/a/link`)
    await files.symlink('../kept', `${root}/link-to-kept`)
    await files.removeTree(`${root}/tree`)
    await files.removeTree(`${root}/link-to-kept`)
    await files.removeTree(`${root}/none`)
    expect(await files.list(root)).toEqual(['kept'])
    expect(await files.readText(`${root}/kept/file`)).toBe('kept')
  })

  it('removes a tree whose path leads through a link', async () => {
    const { files, root } = await workIn(build)
    await files.makeDirectories(`${root}/real/tree/a`)
    await files.symlink('real', `${root}/link`)
    await files.removeTree(`${root}/link/tree`)
    expect(await files.list(`${root}/real`)).toEqual([])
  })

  it('changes modes', async () => {
    const { files, root } = await workIn(build)
    await files.write(`${root}/a`, '')
    await files.chmod(`${root}/a`, 0o4755)
    expect((await files.stat(`${root}/a`))?.mode).toBe(0o4755)
  })
})

describe('linuxFiles', () => {
  it('reads kinds and numbers of devices', async () => {
    const files = linuxFiles(await realNative())
    expect(await files.stat('/dev/null')).toMatchObject({ kind: 'character', major: 1, minor: 3 })
    expect((await files.stat('/proc/self/ns'))?.kind).toBe('directory')
  })

  it('reads files of /proc, whose size is 0', async () => {
    const files = linuxFiles(await realNative())
    expect(await files.readText('/proc/self/status')).toContain(`Pid:\t${process.pid}\n`)
  })

  it('reads no head of a fifo, and does not wait for its writer', async () => {
    const files = linuxFiles(await realNative())
    const fifo = join(folder, 'fifo')
    execFileSync('mkfifo', [fifo])
    await expect(files.readHead(fifo, 10)).rejects.toMatchObject({ errno: 'EINVAL' })
  })

  // Node's own mkdir loops for ever.
  it('fails to make directories where the kernel refuses them', async () => {
    const files = linuxFiles(await realNative())
    await expect(files.makeDirectories('/proc/none/below')).rejects.toMatchObject({
      message: 'mkdir /proc/none/below: ENOENT',
    })
  })

  it('lists a bounded number of names at once, and walks through and removes any number', async () => {
    const { files, root } = await workIn(async () => linuxFiles(await realNative(), 3000))
    mkdirSync(`${root}/tree`)
    for (let number = 0; number < 3000; number++) writeFileSync(`${root}/tree/${number}`, '')
    const sorted = Array.from({ length: 3000 }, (_, number) => `${number}`).sort()
    expect(await files.list(`${root}/tree`)).toEqual(sorted)
    mkdirSync(`${root}/tree/one-more`)
    for (const list of [files.list, files.listFolders])
      await expect(list(`${root}/tree`)).rejects.toMatchObject({
        code: 'RESOURCE_EXHAUSTED',
        message: `list ${root}/tree: EFBIG: more than 3000 names`,
      })
    const names = new Set<string>()
    for await (const name of files.names(`${root}/tree`)) names.add(name)
    expect(names.size).toBe(3001)
    await files.removeTree(`${root}/tree`)
    expect(await files.list(root)).toEqual([])
  })

  it('removes trees with names that are not UTF-8', async () => {
    const { files, root } = await workIn(async () => linuxFiles(await realNative()))
    const odd = Buffer.concat([Buffer.from(`${root}/tree/`), Buffer.from([0xff, 0xfe])])
    mkdirSync(odd, { recursive: true })
    writeFileSync(Buffer.concat([odd, Buffer.from([0x2f, 0xc3])]), '')
    await files.removeTree(`${root}/tree`)
    expect(await files.list(root)).toEqual([])
  })
})

describe('deviceNumbers', () => {
  it('reads small and large numbers', () => {
    expect(deviceNumbers(0x0103n)).toEqual({ major: 1, minor: 3 })
    // makedev(0xabcde, 0xfedcb) of glibc.
    expect(deviceNumbers(0xab000fedcdecbn)).toEqual({ major: 0xabcde, minor: 0xfedcb })
  })
})

describe('readSmall of linuxFiles', () => {
  it('reads in one trip for all calls of a moment, and gives each its texts', async () => {
    const native = await realNative()
    const trips: (readonly string[])[] = []
    const readFiles: typeof native.readFiles = (paths, maxBytes) => {
      trips.push(paths)
      return native.readFiles(paths, maxBytes)
    }
    const files = linuxFiles({ ...native, readFiles })
    const [type, version] = ['/proc/sys/kernel/ostype', '/proc/sys/kernel/osrelease'] as const
    const first = Promise.all([
      files.readSmall([type, '/none']),
      files.readSmall([]),
      files.readSmall([type]),
    ])
    expect(await first).toEqual([['Linux\n', ''], [], ['Linux\n']])
    const [text] = await files.readSmall([version])
    expect(text).toBe(readFileSync(version, 'utf8'))
    expect(trips).toEqual([[type, '/none', type], [version]])
  })

  it('reads for as many processes as the kernel may have', async () => {
    const readFiles = async (paths: readonly string[]) => Buffer.from('\0'.repeat(paths.length))
    const files = linuxFiles({ ...(await realNative()), readFiles })
    expect(await files.readSmall(Array.from({ length: 2 ** 22 }, () => '/none'))).toHaveLength(2 ** 22)
  })
})

describe('linuxFiles on a process that ends while it is listed', () => {
  it('leaves it out', async () => {
    const files = linuxFiles(await realNative())
    const entries = vi.spyOn(Dir.prototype, Symbol.asyncIterator).mockImplementation(() => {
      throw Object.assign(new Error('lstat /proc/4711'), { code: 'ENOENT' })
    })
    try {
      await expect(files.list('/')).rejects.toThrow('list /: ENOENT')
      expect(await files.list('/proc')).toContain(`${process.pid}`)
    } finally {
      entries.mockRestore()
    }
  })
})
