import { beforeEach, describe, expect, it } from 'vitest'
import { kernelError } from '../../../../src/os/errors.ts'
import type { FakeOs } from '../../../support/fakes/fake-os.ts'
import { publish, treeOf } from '../../../support/handlers/storage/kubernetes-volume.ts'
import {
  COPY,
  keys,
  SHARED,
  SOURCE,
  WatchedMachine,
} from '../../../support/handlers/storage/watched-machine.ts'

describe('WatchedStorage', () => {
  let machine: WatchedMachine
  let os: FakeOs

  beforeEach(async () => {
    machine = new WatchedMachine()
    os = machine.os
    await os.files.makeDirectories(SOURCE)
  })

  it('copies new and changed entries and removes the others', async () => {
    await os.files.put(`${SOURCE}/changed`, 'old')
    await os.files.put(`${SOURCE}/gone/file`, 'old')
    await os.files.put(`${SOURCE}/folder/kept`, 'old')
    await machine.attach()
    const { inode } = await machine.statusOf(`${COPY}/folder`)
    await os.files.write(`${SOURCE}/changed`, 'new')
    await os.files.removeTree(`${SOURCE}/gone`)
    await os.files.put(`${SOURCE}/folder/new/file`, 'new')
    await os.files.chmod(`${SOURCE}/folder`, 0o700)
    await machine.round()
    expect(await treeOf(os.files, COPY)).toEqual({
      changed: 'new',
      folder: '',
      'folder/kept': 'old',
      'folder/new': '',
      'folder/new/file': 'new',
    })
    expect(await machine.statusOf(`${COPY}/folder`)).toMatchObject({ inode, mode: 0o700 })
  })

  it.each([
    ['a file', 'a folder'],
    ['a folder', 'a link'],
    ['a link', 'a file'],
    ['a link', 'a folder'],
  ] as const)('follows what was %s and is %s', async (before, after) => {
    await make(before)
    await machine.attach()
    await os.files.removeTree(`${SOURCE}/entry`)
    await make(after)
    await machine.round()
    expect(await treeOf(os.files, COPY)).toEqual(await treeOf(os.files, SOURCE))
  })

  it('leaves unchanged entries alone', async () => {
    await publish(os.files, SOURCE, '..v1', { key: 'one' })
    await machine.attach()
    const before = await machine.statusOf(`${COPY}/..v1/key`)
    const looks = machine.countCalls()
    await machine.round()
    expect(await machine.statusOf(`${COPY}/..v1/key`)).toEqual(before)
    expect(looks()).toEqual({ reads: 0, changes: 0 })
  })

  it('never shows a reader a mix of versions', async () => {
    await publish(os.files, SOURCE, '..v1', { a: 'one', b: 'one' })
    await machine.attach()
    await publish(os.files, SOURCE, '..v2', { a: 'two', b: 'two', c: 'two' })
    const seen = new Set<string>()
    machine.onEachChange(async () => {
      const read = (name: string) => os.files.readText(`${COPY}/${name}`)
      seen.add(`${await read('a')} ${await read('..data/b')}`)
      const names = await os.files.list(COPY)
      if (names.includes('c')) seen.add(await read('c'))
    })
    await machine.round()
    await machine.round()
    expect([...seen]).toEqual(['one one', 'two two', 'two'])
    expect(await treeOf(os.files, COPY)).toEqual(await treeOf(os.files, SOURCE))
  })

  it('keeps the previous version until the next round', async () => {
    await publish(os.files, SOURCE, '..v1', { key: 'one' })
    await machine.attach()
    await publish(os.files, SOURCE, '..v2', { key: 'two' })
    await machine.round()
    expect(await treeOf(os.files, COPY)).toMatchObject({ '..data': '-> ..v2', '..v1/key': 'one' })
    await machine.round()
    expect(await treeOf(os.files, COPY)).toEqual(await treeOf(os.files, SOURCE))
  })

  it.each(['prepared', 'switched'] as const)(
    'keeps the version in use when the next one is %s',
    async (steps) => {
      await publish(os.files, SOURCE, '..v1', keys(7, 'one'))
      await machine.attach()
      await publish(os.files, SOURCE, '..v2', keys(7, 'two'), steps)
      await machine.round()
      await machine.round()
      const [used, other] = steps === 'prepared' ? ['..v1', '..v2'] : ['..v2', '..v1']
      const copy = await treeOf(os.files, COPY)
      expect(copy).toMatchObject({ '..data': `-> ${used}` })
      expect(Object.keys(copy)).not.toContain(other)
      expect(machine.binds()).toEqual([])
    },
  )

  it('copies a whole version when the source is switched during the read', async () => {
    await publish(os.files, SOURCE, '..v1', { a: 'one', b: 'one' })
    const readBytes = os.files.readBytes.bind(os.files)
    os.files.readBytes = async (path) => {
      os.files.readBytes = readBytes
      const data = await readBytes(path)
      await publish(os.files, SOURCE, '..v2', { a: 'two', b: 'two' })
      return data
    }
    await machine.attach()
    expect(await treeOf(os.files, COPY)).toEqual(await treeOf(os.files, SOURCE))
    expect(await os.files.readText(`${COPY}/a`)).toBe('two')
  })

  it('scans again when an entry changed during the scan', async () => {
    await os.files.put(`${SOURCE}/a`, 'one')
    await os.files.put(`${SOURCE}/b`, 'one')
    const readBytes = os.files.readBytes.bind(os.files)
    os.files.readBytes = async (path) => {
      if (path.endsWith('/b')) {
        os.files.readBytes = readBytes
        await os.files.write(`${SOURCE}/a`, 'two')
      }
      return readBytes(path)
    }
    await machine.attach()
    expect(await treeOf(os.files, COPY)).toEqual({ a: 'two', b: 'one' })
  })

  it('keeps the copy while the source is changing or missing', async () => {
    await os.files.put(`${SOURCE}/log`, 'old')
    await machine.attach()
    await os.files.write(`${SOURCE}/log`, 'new')
    const readBytes = os.files.readBytes.bind(os.files)
    os.files.readBytes = async (path) => {
      const data = await readBytes(path)
      if (path.startsWith(SOURCE)) await os.files.write(path, `${data}.`)
      return data
    }
    await machine.round()
    expect(await treeOf(os.files, COPY)).toEqual({ log: 'old' })
    os.files.readBytes = readBytes
    await os.files.removeTree(SOURCE)
    await machine.round()
    expect(await treeOf(os.files, COPY)).toEqual({ log: 'old' })
  })

  it('logs an unreadable source once, and again after it was readable', async () => {
    const complaint = `read ${SOURCE}/file: EACCES`
    await os.files.put(`${SOURCE}/file`, 'first')
    await machine.attach()
    for (const content of ['second', 'third']) {
      await os.files.write(`${SOURCE}/file`, content)
      const heal = machine.refuseToRead('EACCES')
      await machine.round()
      await machine.round()
      heal()
      await machine.round()
      expect(await treeOf(os.files, COPY)).toEqual({ file: content })
    }
    expect(machine.warnings()).toEqual([complaint, complaint])
  })

  it('continues where writing failed', async () => {
    await publish(os.files, SOURCE, '..v1', { a: 'one' })
    await machine.attach()
    await publish(os.files, SOURCE, '..v2', { a: 'two', b: 'two' })
    const rename = os.files.rename.bind(os.files)
    os.files.rename = async (from, to) => {
      if (to.endsWith('/..data')) throw kernelError('rename', to, 'ENOSPC')
      await rename(from, to)
    }
    await machine.round()
    expect(await os.files.readText(`${COPY}/a`)).toBe('one')
    os.files.rename = rename
    await machine.round()
    await machine.round()
    expect(await treeOf(os.files, COPY)).toEqual(await treeOf(os.files, SOURCE))
    expect(machine.warnings()).toEqual([`rename ${COPY}/..data: ENOSPC`])
  })

  it('copies a folder that appears later', async () => {
    await os.files.removeTree(SOURCE)
    await machine.attach()
    expect(await treeOf(os.files, COPY)).toEqual({})
    await os.files.put(`${SOURCE}/file`, 'x')
    await machine.round()
    expect(await treeOf(os.files, COPY)).toEqual({ file: 'x' })
  })

  it('rewrites a watched file in place, because containers have mounted it', async () => {
    await os.files.put(`${SHARED}/c1-file`, 'long before')
    await machine.attach({ source: `${SHARED}/c1-file` })
    const { inode } = await machine.statusOf(COPY)
    await os.files.write(`${SHARED}/c1-file`, 'after')
    await machine.round()
    expect(await os.files.readText(COPY)).toBe('after')
    expect(await machine.statusOf(COPY)).toMatchObject({ kind: 'file', inode, mode: 0o644 })
  })

  it('ignores a trailing slash of the source', async () => {
    await os.files.put(`${SOURCE}/file`, 'x')
    await machine.attach({ source: `${SOURCE}/` })
    expect(await treeOf(os.files, COPY)).toEqual({ file: 'x' })
  })

  it('follows no symbolic link that a container created in the copy', async () => {
    await os.files.put(`${SOURCE}/folder/passwd`, 'x')
    await machine.attach()
    await os.files.put('/etc/passwd', 'root')
    await os.files.removeTree(`${COPY}/folder`)
    await os.files.symlink('/etc', `${COPY}/folder`)
    await os.files.write(`${SOURCE}/folder/passwd`, 'new')
    await os.files.write(`${SOURCE}/folder/new`, 'new')
    await machine.round()
    await os.files.removeTree(`${SOURCE}/folder/passwd`)
    await machine.round()
    expect(await treeOf(os.files, '/etc')).toEqual({ passwd: 'root' })
  })

  async function make(what: 'a file' | 'a folder' | 'a link'): Promise<void> {
    const entry = `${SOURCE}/entry`
    if (what === 'a file') await os.files.put(entry, 'x')
    else if (what === 'a folder') await os.files.put(`${entry}/inner`, 'x')
    else await os.files.symlink('elsewhere', entry)
  }
})
