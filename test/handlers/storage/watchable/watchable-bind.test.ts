import { beforeEach, describe, expect, it } from 'vitest'
import { cancelled } from '../../../../src/base/signals.ts'
import type { Storage } from '../../../../src/gen/agent.ts'
import {
  type AttachedStorages,
  createStorageHandlers,
  type StorageHandlers,
} from '../../../../src/handlers/storage/storage.ts'
import { watchableBind } from '../../../../src/handlers/storage/watchable/watchable-bind.ts'
import { kernelError } from '../../../../src/os/errors.ts'
import { storageDriverContract } from '../../../contracts/storage-driver.ts'
import { FakeOs } from '../../../fakes/os/fake-os.ts'
import { recordingLog } from '../../../fakes/recording-log.ts'
import { dependenciesOf, noSignal, ROOT, storageOf } from '../storage-builder.ts'
import { publish, treeOf } from './kubernetes-volume.ts'

const SHARED = `${ROOT}/shared/containers`
const SOURCE = `${SHARED}/c1-volume`
const WATCHED = `${SHARED}/watchable`
const COPY = `${WATCHED}/c1-volume`

storageDriverContract('watchable-bind', {
  driver: watchableBind,
  storage: watchable(),
  prepare: ({ files }) => publish(files, SOURCE, '..v1', { key: 'one' }),
})

describe('watchable-bind', () => {
  let os: FakeOs
  let handlers: StorageHandlers
  let warnings: () => readonly string[]

  beforeEach(async () => {
    os = new FakeOs()
    const { log, lines } = recordingLog()
    warnings = () => lines.flatMap(({ level, fields }) => (level === 'warn' ? [String(fields.error)] : []))
    handlers = createStorageHandlers({ ...dependenciesOf(os), log })
    await os.files.makeDirectories(SOURCE)
  })

  describe('copies', () => {
    it('files, folders and links with their modes, owners and times', async () => {
      await os.files.put(`${SOURCE}/folder/script`, '#!/bin/sh')
      await os.files.chown(`${SOURCE}/folder/script`, 1000, 2000)
      await os.files.chmod(`${SOURCE}/folder/script`, 0o4750)
      await os.files.chmod(`${SOURCE}/folder`, 0o1777)
      await os.files.chmod(SOURCE, 0o700)
      await os.files.symlink('/etc/shadow', `${SOURCE}/out`)
      await attach()
      expect(await treeOf(os.files, COPY)).toEqual({
        folder: '',
        'folder/script': '#!/bin/sh',
        out: '-> /etc/shadow',
      })
      const { modifiedNs } = await statusOf(`${SOURCE}/folder/script`)
      const script = { mode: 0o4750, uid: 1000, gid: 2000, modifiedNs }
      expect(await statusOf(`${COPY}/folder/script`)).toMatchObject(script)
      expect(await statusOf(`${COPY}/folder`)).toMatchObject({ mode: 0o1777 })
      expect(await statusOf(COPY)).toMatchObject({ mode: 0o700 })
    })

    it('into memory that all share, with nothing but the copies to be seen in them', async () => {
      await publish(os.files, SOURCE, '..v1', { key: 'one' })
      await attach()
      await attach({ mountPoint: `${WATCHED}/other` })
      expect(os.mounts.requests).toEqual([
        { source: 'tmpfs', target: WATCHED, type: 'tmpfs', flags: ['nosuid', 'nodev'], data: 'mode=755' },
      ])
      expect(await treeOf(os.files, COPY)).toEqual({
        '..data': '-> ..v1',
        '..v1': '',
        '..v1/key': 'one',
        key: '-> ..data/key',
      })
      expect(os.files.openFolders).toBe(0)
    })

    it('nothing but files, folders and links', async () => {
      for (const kind of ['fifo', 'character', 'block', 'socket'] as const) {
        await os.files.makeSpecial(`${SOURCE}/${kind}`, { kind })
      }
      await os.files.put(`${SOURCE}/file`, 'x')
      await attach()
      expect(await treeOf(os.files, COPY)).toEqual({ file: 'x' })
    })

    it('what is given to a group', async () => {
      await os.files.put(`${SOURCE}/file`, 'x')
      await attach({ fsGroup: { groupId: 1000, groupChangePolicy: 0 }, options: ['bind', 'ro'] })
      expect(await statusOf(`${COPY}/file`)).toMatchObject({ gid: 1000, mode: 0o644 })
      expect(await statusOf(COPY)).toMatchObject({ gid: 1000, mode: 0o2777 })
      expect(await statusOf(`${SOURCE}/file`)).toMatchObject({ gid: 0 })
    })
  })

  describe('every two seconds', () => {
    it('follows what is new, changed and gone', async () => {
      await os.files.put(`${SOURCE}/changed`, 'old')
      await os.files.put(`${SOURCE}/gone/file`, 'old')
      await os.files.put(`${SOURCE}/folder/kept`, 'old')
      await attach()
      const { inode } = await statusOf(`${COPY}/folder`)
      await os.files.write(`${SOURCE}/changed`, 'new')
      await os.files.removeTree(`${SOURCE}/gone`)
      await os.files.put(`${SOURCE}/folder/new/file`, 'new')
      await os.files.chmod(`${SOURCE}/folder`, 0o700)
      await round()
      expect(await treeOf(os.files, COPY)).toEqual({
        changed: 'new',
        folder: '',
        'folder/kept': 'old',
        'folder/new': '',
        'folder/new/file': 'new',
      })
      expect(await statusOf(`${COPY}/folder`)).toMatchObject({ inode, mode: 0o700 })
    })

    it.each([
      ['a file', 'a folder'],
      ['a folder', 'a link'],
      ['a link', 'a file'],
      ['a link', 'a folder'],
    ] as const)('follows what was %s and is %s', async (before, after) => {
      await make(before)
      await attach()
      await os.files.removeTree(`${SOURCE}/entry`)
      await make(after)
      await round()
      expect(await treeOf(os.files, COPY)).toEqual(await treeOf(os.files, SOURCE))
    })

    it('touches nothing that has not changed', async () => {
      await publish(os.files, SOURCE, '..v1', { key: 'one' })
      await attach()
      const before = await statusOf(`${COPY}/..v1/key`)
      const looks = countCalls()
      await round()
      expect(await statusOf(`${COPY}/..v1/key`)).toEqual(before)
      expect(looks()).toEqual({ reads: 0, changes: 0 })
    })

    it('never lets a reader see anything but one version', async () => {
      await publish(os.files, SOURCE, '..v1', { a: 'one', b: 'one' })
      await attach()
      await publish(os.files, SOURCE, '..v2', { a: 'two', b: 'two', c: 'two' })
      const seen = new Set<string>()
      onEachChange(async () => {
        const read = (name: string) => os.files.readText(`${COPY}/${name}`)
        seen.add(`${await read('a')} ${await read('..data/b')}`)
        const names = await os.files.list(COPY)
        if (names.includes('c')) seen.add(await read('c'))
      })
      await round()
      await round()
      expect([...seen]).toEqual(['one one', 'two two', 'two'])
      expect(await treeOf(os.files, COPY)).toEqual(await treeOf(os.files, SOURCE))
    })

    it('leaves the version before to those who are in it until the next time', async () => {
      await publish(os.files, SOURCE, '..v1', { key: 'one' })
      await attach()
      await publish(os.files, SOURCE, '..v2', { key: 'two' })
      await round()
      expect(await treeOf(os.files, COPY)).toMatchObject({ '..data': '-> ..v2', '..v1/key': 'one' })
      await round()
      expect(await treeOf(os.files, COPY)).toEqual(await treeOf(os.files, SOURCE))
    })

    it.each(['prepared', 'switched'] as const)(
      'takes no version but the one in use when the next one is %s',
      async (steps) => {
        await publish(os.files, SOURCE, '..v1', keys(7, 'one'))
        await attach()
        await publish(os.files, SOURCE, '..v2', keys(7, 'two'), steps)
        await round()
        await round()
        const [used, other] = steps === 'prepared' ? ['..v1', '..v2'] : ['..v2', '..v1']
        const copy = await treeOf(os.files, COPY)
        expect(copy).toMatchObject({ '..data': `-> ${used}` })
        expect(Object.keys(copy)).not.toContain(other)
        expect(bindsOf(os)).toEqual([])
      },
    )

    it('takes a whole version when the source is switched while it is read', async () => {
      await publish(os.files, SOURCE, '..v1', { a: 'one', b: 'one' })
      const readBytes = os.files.readBytes.bind(os.files)
      os.files.readBytes = async (path) => {
        os.files.readBytes = readBytes
        const data = await readBytes(path)
        await publish(os.files, SOURCE, '..v2', { a: 'two', b: 'two' })
        return data
      }
      await attach()
      expect(await treeOf(os.files, COPY)).toEqual(await treeOf(os.files, SOURCE))
      expect(await os.files.readText(`${COPY}/a`)).toBe('two')
    })

    it('looks again when something has changed that it had seen before', async () => {
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
      await attach()
      expect(await treeOf(os.files, COPY)).toEqual({ a: 'two', b: 'one' })
    })

    it('keeps what it has while the source is being changed or is missing', async () => {
      await os.files.put(`${SOURCE}/log`, 'old')
      await attach()
      await os.files.write(`${SOURCE}/log`, 'new')
      const readBytes = os.files.readBytes.bind(os.files)
      os.files.readBytes = async (path) => {
        const data = await readBytes(path)
        if (path.startsWith(SOURCE)) await os.files.write(path, `${data}.`)
        return data
      }
      await round()
      expect(await treeOf(os.files, COPY)).toEqual({ log: 'old' })
      os.files.readBytes = readBytes
      await os.files.removeTree(SOURCE)
      await round()
      expect(await treeOf(os.files, COPY)).toEqual({ log: 'old' })
    })

    it('says once what it cannot read, and again when it could meanwhile', async () => {
      const complaint = `read ${SOURCE}/file: EACCES`
      await os.files.put(`${SOURCE}/file`, 'first')
      await attach()
      for (const content of ['second', 'third']) {
        await os.files.write(`${SOURCE}/file`, content)
        const heal = refuseToRead('EACCES')
        await round()
        await round()
        heal()
        await round()
        expect(await treeOf(os.files, COPY)).toEqual({ file: content })
      }
      expect(warnings()).toEqual([complaint, complaint])
    })

    it('goes on where it failed to write', async () => {
      await publish(os.files, SOURCE, '..v1', { a: 'one' })
      await attach()
      await publish(os.files, SOURCE, '..v2', { a: 'two', b: 'two' })
      const rename = os.files.rename.bind(os.files)
      os.files.rename = async (from, to) => {
        if (to.endsWith('/..data')) throw kernelError('rename', to, 'ENOSPC')
        await rename(from, to)
      }
      await round()
      expect(await os.files.readText(`${COPY}/a`)).toBe('one')
      os.files.rename = rename
      await round()
      await round()
      expect(await treeOf(os.files, COPY)).toEqual(await treeOf(os.files, SOURCE))
      expect(warnings()).toEqual([`rename ${COPY}/..data: ENOSPC`])
    })

    it('takes in a folder that comes later', async () => {
      await os.files.removeTree(SOURCE)
      await attach()
      expect(await treeOf(os.files, COPY)).toEqual({})
      await os.files.put(`${SOURCE}/file`, 'x')
      await round()
      expect(await treeOf(os.files, COPY)).toEqual({ file: 'x' })
    })

    it('writes a file that is watched by itself in its place, for containers have mounted it', async () => {
      await os.files.put(`${SHARED}/c1-file`, 'long before')
      await attach({ source: `${SHARED}/c1-file` })
      const { inode } = await statusOf(COPY)
      await os.files.write(`${SHARED}/c1-file`, 'after')
      await round()
      expect(await os.files.readText(COPY)).toBe('after')
      expect(await statusOf(COPY)).toMatchObject({ kind: 'file', inode, mode: 0o644 })
    })

    it('takes the slash at the end of a source for nothing', async () => {
      await os.files.put(`${SOURCE}/file`, 'x')
      await attach({ source: `${SOURCE}/` })
      expect(await treeOf(os.files, COPY)).toEqual({ file: 'x' })
    })

    it('follows no link that a container has put into its copy', async () => {
      await os.files.put(`${SOURCE}/folder/passwd`, 'x')
      await attach()
      await os.files.put('/etc/passwd', 'root')
      await os.files.removeTree(`${COPY}/folder`)
      await os.files.symlink('/etc', `${COPY}/folder`)
      await os.files.write(`${SOURCE}/folder/passwd`, 'new')
      await os.files.write(`${SOURCE}/folder/new`, 'new')
      await round()
      await os.files.removeTree(`${SOURCE}/folder/passwd`)
      await round()
      expect(await treeOf(os.files, '/etc')).toEqual({ passwd: 'root' })
    })
  })

  describe('mounts the source itself', () => {
    it.each([
      ['17 entries', () => files(17)],
      ['a file of more than 1 MiB', () => os.files.put(`${SOURCE}/big`, 'x'.repeat(1024 * 1024 + 1))],
      ['files of more than 1 MiB', () => files(2, 'x'.repeat(600_000))],
      ['a folder of very many names', () => links(1000)],
      ['a deep tree', () => os.files.makeDirectories(`${SOURCE}${'/d'.repeat(17)}`)],
      [
        'a file that cannot be read',
        async () => {
          await files(1)
          refuseToRead('EIO')
        },
      ],
    ])('for %s', async (_name, prepare) => {
      await prepare()
      const attached = await attach({ options: ['rbind', 'ro'] })
      expect(bindsOf(os)).toEqual([{ source: SOURCE, target: COPY }])
      expect(os.clock.sleeping).toBe(0)
      await handlers.release(attached)
      await expectNothingLeft()
    })

    it('for no more than 16 entries of at most 1 MiB not at all', async () => {
      await files(16, 'x'.repeat(65_536))
      await attach()
      expect(bindsOf(os)).toEqual([])
      expect(await treeOf(os.files, COPY)).toEqual(await treeOf(os.files, SOURCE))
    })

    it('for good when it becomes too large', async () => {
      await files(16)
      const attached = await attach({ options: [] })
      await os.files.write(`${SOURCE}/one-more`, '')
      await round()
      expect(bindsOf(os)).toEqual([{ source: SOURCE, target: COPY }])
      expect(os.clock.sleeping).toBe(0)
      await handlers.release(attached)
      await expectNothingLeft()
    })

    it('as soon as that succeeds', async () => {
      await attach()
      await files(17)
      os.mounts.failWith = (_call, target) => (target === COPY ? 'ENOMEM' : undefined)
      await round()
      await round()
      expect(warnings()).toEqual([`mount ${COPY}: ENOMEM`])
      os.mounts.failWith = () => undefined
      await round()
      expect(bindsOf(os)).toEqual([{ source: SOURCE, target: COPY }])
    })
  })

  describe('release', () => {
    it('ends the rounds and takes the memory away with the last copy', async () => {
      await os.files.put(`${SOURCE}/file`, 'x')
      const first = await attach()
      const second = await attach({ mountPoint: `${WATCHED}/other` })
      await handlers.release(first)
      expect(await os.files.list(WATCHED)).toEqual(['..staging-2', 'other'])
      await handlers.release(second)
      await expectNothingLeft()
    })

    it('leaves a copy to its other users', async () => {
      await os.files.put(`${SOURCE}/file`, 'old')
      const [first, second] = [await attach(), await attach()]
      await handlers.release(first)
      await os.files.write(`${SOURCE}/file`, 'new')
      await round()
      expect(await treeOf(os.files, COPY)).toEqual({ file: 'new' })
      await handlers.release(second)
      await expectNothingLeft()
    })

    it('waits for the round that is under way', async () => {
      const attached = await attach()
      await os.files.put(`${SOURCE}/file`, 'x')
      const gate = Promise.withResolvers<void>()
      const readBytes = os.files.readBytes.bind(os.files)
      os.files.readBytes = async (path) => {
        await gate.promise
        return readBytes(path)
      }
      await round()
      const releasing = handlers.release(attached)
      await turn()
      expect(await os.files.lstat(COPY)).toBeDefined()
      gate.resolve()
      await releasing
      await expectNothingLeft()
    })

    it('leaves one that is shared as it is, until all that stays is taken away', async () => {
      await os.files.put(`${SOURCE}/file`, 'old')
      await handlers.release(await attach({ shared: true }))
      await os.files.write(`${SOURCE}/file`, 'new')
      await round()
      expect(await treeOf(os.files, COPY)).toEqual({ file: 'new' })
      await handlers.clear()
      await expectNothingLeft()
    })

    it('ends with a copy that somebody has cleared away, when it is asked for again', async () => {
      await handlers.release(await attach({ shared: true }))
      await os.files.removeTree(COPY)
      await os.mounts.unmount(WATCHED)
      await handlers.release(await attach())
      expect(os.clock.sleeping).toBe(0)
    })

    it('leaves the folder of the memory when it was there before', async () => {
      await os.files.makeDirectories(WATCHED)
      await handlers.release(await attach())
      expect(os.mounts.isMountPoint(WATCHED)).toBe(false)
      expect(await os.files.list(WATCHED)).toEqual([])
    })
  })

  it.each([
    `${WATCHED}/a/b`,
    WATCHED,
    `${ROOT}/sandbox/volume`,
    `${WATCHED}/..staging-1`,
    `${ROOT}/watchable/volume`,
  ])('refuses the mount point %s', async (mountPoint) => {
    await expect(attach({ mountPoint })).rejects.toMatchObject({
      code: 'INVALID_ARGUMENT',
      message: expect.stringContaining(`mount point '${mountPoint}' refused`),
    })
    await expectNothingLeft()
  })

  it('takes the mount points of the other layout, too', async () => {
    const mountPoint = `${SHARED}/passthrough/watchable/volume`
    await expect(attach({ mountPoint })).resolves.toEqual({ mountPoints: [mountPoint] })
  })

  it.each(['', 'relative', '/', `${SOURCE}/..`, `${SHARED}/link`, `${SHARED}/link/`, `${SHARED}/fifo`])(
    'refuses the source %j',
    async (source) => {
      await os.files.symlink(SOURCE, `${SHARED}/link`)
      await os.files.makeSpecial(`${SHARED}/fifo`, { kind: 'fifo' })
      await expect(attach({ source })).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' })
      await expectNothingLeft()
    },
  )

  it('refuses the option loop', async () => {
    await expect(attach({ options: ['loop'] })).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' })
    await expectNothingLeft()
  })

  it.each(['makeDirectory', 'rename', 'symlink', 'chmod'] as const)(
    'leaves nothing behind when %s fails',
    async (name) => {
      await publish(os.files, SOURCE, '..v1', { key: 'one' })
      os.files[name] = async () => Promise.reject(kernelError(name, COPY, 'ENOSPC'))
      await expect(attach()).rejects.toThrow('ENOSPC')
      await expectNothingLeft()
    },
  )

  it('leaves nothing behind when its call is cancelled while it copies', async () => {
    await os.files.put(`${SOURCE}/file`, 'x')
    const call = new AbortController()
    os.files.onWrite = () => call.abort(cancelled())
    await expect(handlers.attach([watchable()], 'c1', call.signal)).rejects.toMatchObject({
      code: 'CANCELLED',
    })
    await expectNothingLeft()
  })

  function attach(changes: Partial<Storage> = {}): Promise<AttachedStorages> {
    return handlers.attach([watchable(changes)], 'c1', noSignal)
  }

  async function statusOf(path: string) {
    const status = await os.files.lstat(path)
    if (status === undefined) throw new Error(`nothing at ${path}`)
    return status
  }

  /** Lets two seconds pass, and what is then done be done. */
  async function round(): Promise<void> {
    os.clock.advance(2000)
    await turn()
  }

  async function make(what: 'a file' | 'a folder' | 'a link'): Promise<void> {
    const entry = `${SOURCE}/entry`
    if (what === 'a file') await os.files.put(entry, 'x')
    else if (what === 'a folder') await os.files.put(`${entry}/inner`, 'x')
    else await os.files.symlink('elsewhere', entry)
  }

  async function files(count: number, content = ''): Promise<void> {
    for (const [name] of Object.entries(keys(count, content)))
      await os.files.put(`${SOURCE}/${name}`, content)
  }

  async function links(count: number): Promise<void> {
    for (const name of Object.keys(keys(count, ''))) await os.files.symlink('x', `${SOURCE}/${name}`)
  }

  /** From now on no content can be read, until the answer is called. */
  function refuseToRead(errno: string): () => void {
    const readBytes = os.files.readBytes.bind(os.files)
    os.files.readBytes = async (path) => Promise.reject(kernelError('read', path, errno))
    return () => {
      os.files.readBytes = readBytes
    }
  }

  /** Calls back after every change that is made to the tree. */
  function onEachChange(look: () => Promise<void>): void {
    for (const name of CHANGING) {
      const change: (...words: never[]) => Promise<void> = os.files[name].bind(os.files)
      os.files[name] = async (...words: never[]) => {
        await change(...words)
        await look()
      }
    }
  }

  function countCalls(): () => { reads: number; changes: number } {
    const counted = { reads: 0, changes: 0 }
    onEachChange(async () => {
      counted.changes += 1
    })
    const readBytes = os.files.readBytes.bind(os.files)
    os.files.readBytes = (path) => {
      counted.reads += 1
      return readBytes(path)
    }
    return () => counted
  }

  async function expectNothingLeft(): Promise<void> {
    expect(os.mounts.entries.map(({ mountPoint }) => mountPoint)).toEqual(['/'])
    expect(await os.files.list(WATCHED)).toEqual([])
    expect(os.files.openFolders).toBe(0)
    expect(os.clock.sleeping).toBe(0)
  }
})

const CHANGING = ['write', 'rename', 'removeTree', 'symlink', 'makeDirectory', 'chmod', 'chown'] as const

function turn(): Promise<void> {
  return new Promise((resolve) => void setImmediate(resolve))
}

function keys(count: number, content: string): Record<string, string> {
  return Object.fromEntries(Array.from({ length: count }, (_, index) => [`key-${index}`, content]))
}

function bindsOf({ mounts }: FakeOs) {
  const binds = mounts.entries.filter(({ options }) => options.includes('bind'))
  return binds.map(({ source, mountPoint: target }) => ({ source, target }))
}

function watchable(changes: Partial<Storage> = {}): Storage {
  const bind = { driver: 'watchable-bind', fstype: 'bind', options: ['rbind', 'rprivate', 'ro'] }
  return storageOf({ ...bind, source: SOURCE, mountPoint: COPY, ...changes })
}
