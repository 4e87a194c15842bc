import { mkdirSync, readdirSync, statfsSync, statSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { beforeEach, describe, expect, it } from 'vitest'
import { linuxStateFiles, type StateFiles } from '../../../src/os/files/state-files.ts'
import { MemoryStateFiles } from '../../support/fakes/files/memory-state-files.ts'
import { realNative } from '../../support/os/real-native.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

const native = await realNative()

/** Dies before the step that would complete a write. */
const UNFINISHING = {
  ...native,
  replaceFile: (unfinished: string) => {
    mkdirSync(dirname(unfinished), { recursive: true })
    writeFileSync(unfinished, 'half')
    throw new Error('dead')
  },
}

describe.each([
  ['linuxStateFiles', () => linuxStateFiles(native, join(temporaryFolder(), 'state'))],
  ['MemoryStateFiles', () => new MemoryStateFiles()],
])('%s', (_name, build: () => StateFiles) => {
  let files: StateFiles
  beforeEach(() => {
    files = build()
  })

  it('lists a folder whatever its name is: containers may have any', () => {
    files.write('containers/web.new/record', new Uint8Array())
    files.write('containers/unfinished.new/record', new Uint8Array())
    expect(files.list('containers')).toEqual(['unfinished.new', 'web.new'])
  })

  it('reports what does not exist', () => {
    expect(files.read('a')).toBeUndefined()
    expect(files.list('folder')).toEqual([])
    files.remove('a')
  })

  it('replaces files whole, and lists folders in order', () => {
    files.write('storages/2', Buffer.from('long content'))
    files.write('storages/10', new Uint8Array())
    files.write('storages/2', Buffer.from('short'))
    expect(Buffer.from(files.read('storages/2') ?? []).toString()).toBe('short')
    expect([files.size('storages/2'), files.size('storages/10'), files.size('storages/1')]).toEqual([
      5,
      0,
      undefined,
    ])
    expect([files.list(''), files.list('storages')]).toEqual([['storages'], ['10', '2']])
  })

  it('removes a file, a folder, and all, but nothing that only begins alike', () => {
    for (const path of ['containers/c1/record', 'containers/c10/record', 'oom'])
      files.write(path, new Uint8Array())
    files.remove('containers/c1')
    expect([files.list('containers'), files.list('containers/c1')]).toEqual([['c10'], []])
    files.remove('oom')
    expect([files.list(''), files.read('oom')]).toEqual([['containers'], undefined])
    files.remove('')
    expect(files.list('')).toEqual([])
  })
})

describe('linuxStateFiles', () => {
  let root: string
  let files: StateFiles

  beforeEach(() => {
    root = join(temporaryFolder(), 'state')
    files = linuxStateFiles(native, root)
  })

  it('makes files and their folders, for the agent alone', () => {
    files.write('containers/c1/record', Buffer.from('a'))
    files.write('containers/c1/record', Buffer.from('b'))
    expect(Buffer.from(files.read('containers/c1/record') ?? [])).toEqual(Buffer.from('b'))
    expect(statSync(root).mode & 0o777).toBe(0o700)
    expect(statSync(join(root, 'containers/c1/record')).mode & 0o777).toBe(0o600)
    expect(readdirSync(join(root, 'containers/c1'))).toEqual(['record'])
  })

  it('lists no file whose writing did not end', () => {
    files.write('b', new Uint8Array())
    files.write('a', new Uint8Array())
    dieInWrite('c')
    expect(files.list('')).toEqual(['a', 'b'])
  })

  it('removes the remains of interrupted writes with the next write', () => {
    files.write('storages/1', new Uint8Array())
    dieInWrite('storages/2')
    dieInWrite('oom')
    files.write('storages/3', new Uint8Array())
    expect(readdirSync(root, { recursive: true }).sort()).toEqual(['storages', 'storages/1', 'storages/3'])
  })

  it('reports what exists, and the free room', async () => {
    expect(files.room().bytes).toBeGreaterThan(2 ** 40)
    files.write('oom', new Uint8Array(3))
    expect([files.size('oom'), files.size('policy'), files.size('containers/c1/record')]).toEqual([
      3,
      undefined,
      undefined,
    ])
    // Others write to the disk, too.
    const free = () => Number(statfsSync(root).bavail) * statfsSync(root).bsize
    await expect.poll(() => files.room().bytes - free(), { interval: 1 }).toBe(0)
  })

  it('names the file that cannot be written', () => {
    mkdirSync(join(root, 'oom'), { recursive: true })
    expect(() => files.write('oom', new Uint8Array())).toThrow(`write ${root}/oom: EISDIR`)
    expect(readdirSync(root)).toEqual(['oom'])
  })

  function dieInWrite(path: string): void {
    expect(() => linuxStateFiles(UNFINISHING, root).write(path, Buffer.from('half'))).toThrow('dead')
  }
})
