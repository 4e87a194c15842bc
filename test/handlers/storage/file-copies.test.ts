import { beforeEach, describe, expect, it } from 'vitest'
import { AgentError } from '../../../src/base/errors.ts'
import { CopyFileRequest } from '../../../src/gen/agent.ts'
import { FileCopies } from '../../../src/handlers/storage/copies/file-copies.ts'
import { kernelError } from '../../../src/os/errors.ts'
import type { Files } from '../../../src/os/files/files.ts'
import type { Folder } from '../../../src/os/files/folder.ts'
import type { RequestState } from '../../../src/os/supervisor/broker-messages.ts'
import { RequestJournal } from '../../../src/state/request-journal.ts'
import { StateStore } from '../../../src/state/state-store.ts'
import { FakeOs } from '../../support/fakes/fake-os.ts'
import { MemoryStateFiles } from '../../support/fakes/files/memory-state-files.ts'
import { recordingLog } from '../../support/fakes/recording-log.ts'
import { callOf, numbered } from '../../support/handlers/call.ts'
import { FakeRequests } from '../../support/handlers/fake-requests.ts'
import { treeOf } from '../../support/handlers/storage/kubernetes-volume.ts'

const ROOT = '/run/kata-containers/shared/containers'
const FILE = 0o100_644
const FOLDER = 0o040_755
const LINK = 0o120_777

describe('FileCopies', () => {
  let os: FakeOs
  let log: ReturnType<typeof recordingLog>
  let copies: FileCopies
  let saved: MemoryStateFiles

  beforeEach(() => {
    os = new FakeOs()
    log = recordingLog()
    saved = new MemoryStateFiles()
    copies = new FileCopies(parts())
  })

  const parts = (states = new Map<bigint, RequestState>()) => {
    const state = new StateStore(saved)
    const requests = new RequestJournal(state, log.log, new FakeRequests(states))
    return { os, log: log.log, root: ROOT, state, requests }
  }
  const copy = (path: string, text: string, request: Partial<CopyFileRequest> = {}) => {
    const data = Buffer.from(text)
    const given = { fileMode: FILE, fileSize: BigInt(data.length), dirMode: 0o755, data, ...request }
    return copies.copy(CopyFileRequest.fromPartial({ path: `${ROOT}/${path}`, ...given }), callOf())
  }
  const chunk = (path: string, text: string, offset = 0n) => copy(path, text, { fileSize: 8n, offset })
  const tree = () => treeOf(os.files, ROOT)
  const status = (path: string) => os.files.lstat(`${ROOT}/${path}`)

  it('takes the mode without a type for that of a file, and ids above 2^31', async () => {
    await copy('file', 'x', { fileMode: 0o7640, uid: -2, gid: -1_294_967_296 })
    expect(await status('file')).toMatchObject({
      ...{ kind: 'file', mode: 0o7640, uid: 4_294_967_294, gid: 3_000_000_000 },
    })
  })

  it('takes data that is in a file, and reads it for the target of a link', async () => {
    const stored = (text: string) => ({
      length: text.length,
      place: undefined,
      read: () => Buffer.from(text),
    })
    const given = { dirMode: 0o755, fileSize: 8n }
    const send = (request: Partial<CopyFileRequest>, text: string) => {
      const [inFile, data] = [stored(text), Buffer.alloc(0)]
      const full = CopyFileRequest.fromPartial({ ...given, ...request, data })
      return copies.copy(full, { ...callOf(), data: inFile })
    }
    await send({ path: `${ROOT}/file`, fileMode: FILE }, 'four')
    await send({ path: `${ROOT}/file`, fileMode: FILE, offset: 4n }, 'more')
    await send({ path: `${ROOT}/link`, fileMode: LINK }, 'target')
    expect(await tree()).toEqual({ file: 'fourmore', link: '-> target' })
    const end = 'offset: 4, 5 bytes of data end after file_size 8'
    await expect(send({ path: `${ROOT}/file`, offset: 4n }, 'above')).rejects.toThrow(end)
  })

  it('ignores empty components and dots', async () => {
    await copy('./a//b/./file/', 'x')
    expect(await tree()).toEqual({ a: '', 'a/b': '', 'a/b/file': 'x' })
  })

  it('takes names that begin with two dots', async () => {
    await copy('..data', '..v1', { fileMode: LINK })
    await copy('...', 'x')
    expect(await tree()).toEqual({ '..data': '-> ..v1', '...': 'x' })
  })

  describe('of an agent that died', () => {
    const restart = async (states = new Map<bigint, RequestState>()) => {
      os.files.openFolders = 0
      copies = new FileCopies(parts(states))
      await copies.restore()
    }

    it('continue where they were, in new folders, and leave no record', async () => {
      await chunk('a/b/file', 'four')
      await restart()
      await chunk('a/b/file', 'more', 4n)
      expect(await tree()).toEqual({ a: '', 'a/b': '', 'a/b/file': 'fourmore' })
      expect([saved.names(), os.files.openFolders]).toEqual([[], 0])
    })

    it('are removed with the folders that were made for them', async () => {
      await copy('kept/file', 'x')
      await chunk('kept/a/b/file', 'four')
      await restart()
      await copies.dropAll()
      expect(await tree()).toEqual({ kept: '', 'kept/file': 'x' })
      expect([saved.names(), os.files.openFolders]).toEqual([[], 0])
    })

    it.each([
      ['is sent again', 'open', ['requests/9']],
      ['is not', 'dropped', []],
    ] as const)(
      'are complete once the last chunk was written, whose call %s',
      async (_what, request, left) => {
        await chunk('file', 'four')
        let changes = 0
        saved.beforeChange = () => {
          changes += 1
          // The agent dies after it has recorded which call brings the last bytes.
          if (changes > 1) throw new Error('the agent is dead')
        }
        await expect(copies.copy(CopyFileRequest.fromPartial(lastChunk), numbered(9n))).rejects.toThrow(
          'dead',
        )
        saved.beforeChange = () => {}
        await restart(new Map([[9n, request]]))
        expect(await tree()).toEqual({ file: 'fourmore' })
        expect([saved.names(), os.files.openFolders]).toEqual([left, 0])
      },
    )

    it('are lost, with a warning, when another file is in their place', async () => {
      await chunk('file', 'four')
      const [name = ''] = Object.keys(await tree())
      await os.files.removeFile(`${ROOT}/${name}`)
      await os.files.write(`${ROOT}/${name}`, 'of a container')
      await restart()
      await expect(chunk('file', 'more', 4n)).rejects.toThrow('no chunk has arrived yet')
      expect(await tree()).toEqual({ [name]: 'of a container' })
      expect(log.lines.map(({ message }) => message)).toEqual(['unfinished file lost'])
      expect([saved.names(), os.files.openFolders]).toEqual([[], 0])
    })

    const lastChunk = {
      ...{ path: `${ROOT}/file`, fileMode: FILE, fileSize: 8n, offset: 4n },
      ...{ dirMode: 0o755, data: Buffer.from('more') },
    }
  })

  it('leaves existing parents as they are', async () => {
    await copy('a', '', { fileMode: 0o040_700, uid: 1 })
    await copy('a/b/file', 'x', { uid: 2 })
    expect(await status('a')).toMatchObject({ mode: 0o700, uid: 1 })
    expect(await status('a/b')).toMatchObject({ mode: 0o755, uid: 2 })
  })

  describe('a file of several chunks', () => {
    it('may get a chunk again, or one that overlaps, and is complete when all bytes have arrived', async () => {
      await chunk('file', 'abcd')
      await chunk('file', 'cdef', 2n)
      await chunk('file', 'ef', 4n)
      await chunk('file', 'b', 1n)
      expect(await status('file')).toBeUndefined()
      await chunk('file', 'fgh', 5n)
      expect(await tree()).toEqual({ file: 'abcdefgh' })
      expect(os.files.openFolders).toBe(0)
    })

    it('may begin with a chunk of no bytes', async () => {
      await chunk('file', '')
      await chunk('file', 'abcdefgh')
      expect(await tree()).toEqual({ file: 'abcdefgh' })
    })

    it('is not completed by a chunk that leaves a gap or names another size, and continues', async () => {
      await chunk('file', 'abcd')
      const gap = {
        code: 'INVALID_ARGUMENT',
        message: 'offset: 7, want at most the 4 bytes that have arrived',
      }
      await expect(chunk('file', 'h', 7n)).rejects.toMatchObject(gap)
      const size = { code: 'INVALID_ARGUMENT', message: 'file_size: 6, want 8 as in the first chunk' }
      await expect(copy('file', 'ef', { fileSize: 6n, offset: 4n })).rejects.toMatchObject(size)
      await chunk('file', 'efgh', 4n)
      expect(await tree()).toEqual({ file: 'abcdefgh' })
    })

    it('is not begun by a later chunk, also not by its last one again', async () => {
      await chunk('file', 'abcd')
      await chunk('file', 'efgh', 4n)
      const again = { code: 'FAILED_PRECONDITION', message: expect.stringContaining('want offset 0 first') }
      await expect(chunk('file', 'efgh', 4n)).rejects.toMatchObject(again)
      expect(await tree()).toEqual({ file: 'abcdefgh' })
    })

    it.each([
      ['a file', () => copy('entry', 'old')],
      ['a link', () => copy('entry', 'old', { fileMode: LINK })],
      ['a directory with files', () => copy('entry/old', 'old')],
    ])('removes %s that has its name with the first chunk', async (_kind, before) => {
      await before()
      await chunk('entry', 'abcd')
      expect(await status('entry')).toBeUndefined()
      await chunk('entry', 'efgh', 4n)
      expect(await tree()).toEqual({ entry: 'abcdefgh' })
    })

    it('has the mode and owner of its last chunk', async () => {
      await chunk('file', 'abcd')
      await copy('file', 'efgh', { fileSize: 8n, offset: 4n, fileMode: 0o100_600, uid: 9 })
      expect(await status('file')).toMatchObject({ mode: 0o600, uid: 9 })
    })

    it.each([
      ['a directory', FOLDER, ''],
      ['a link', LINK, 'target'],
      ['a whole file', FILE, 'whole'],
    ])('is dropped when %s is copied to its path', async (_kind, fileMode, text) => {
      await chunk('new/entry', 'abcd')
      await copy('new/entry', text, { fileMode })
      expect(Object.keys(await tree())).toEqual(['new', 'new/entry'])
      await expect(chunk('new/entry', 'efgh', 4n)).rejects.toMatchObject({ code: 'FAILED_PRECONDITION' })
      expect(os.files.openFolders).toBe(0)
    })

    it('is dropped with its parents when a chunk cannot be written', async () => {
      await chunk('a/b/file', 'abcd')
      os.files.onWrite = (path) => {
        throw kernelError('write', path, 'ENOSPC')
      }
      await expect(chunk('a/b/file', 'efgh', 4n)).rejects.toMatchObject({ code: 'INTERNAL', errno: 'ENOSPC' })
      os.files.onWrite = () => {}
      expect(await tree()).toEqual({})
      expect(os.files.openFolders).toBe(0)
    })

    it('keeps the parents that it made when others use them', async () => {
      await chunk('a/b/file', 'abcd')
      await copy('a/b/other', 'kept')
      await copies.dropAll()
      expect(await tree()).toEqual({ a: '', 'a/b': '', 'a/b/other': 'kept' })
      expect(log.lines).toEqual([])
    })
  })

  describe('of unfinished files', () => {
    const most = 64

    it('holds a limited number, and then refuses a further one but not the others', async () => {
      for (let index = 0; index < most; index++) await chunk(`file-${index}`, 'abcd')
      await expect(chunk('further', 'abcd')).rejects.toMatchObject({ code: 'RESOURCE_EXHAUSTED' })
      await copy('small', 'whole')
      await copy('folder', '', { fileMode: FOLDER })
      await chunk('file-3', 'efgh', 4n)
      await chunk('further', 'abcd')
      await chunk('file-5', 'anew')
    })

    it('holds few descriptors of each, however deep it lies', async () => {
      const before = os.files.openFolders
      await chunk(`${'a/'.repeat(40)}file`, 'abcd')
      expect(os.files.openFolders - before).toBe(3)
      await copies.dropAll()
      expect(await tree()).toEqual({})
      expect(os.files.openFolders).toBe(before)
    })

    it('drops the one that has been idle for longest after a minute', async () => {
      await chunk('first', 'abcd')
      await chunk('second', 'abcd')
      os.clock.advance(59_000)
      await chunk('first', 'd', 3n)
      for (let index = 2; index < most; index++) await chunk(`file-${index}`, 'abcd')
      await expect(chunk('further', 'abcd')).rejects.toMatchObject({ code: 'RESOURCE_EXHAUSTED' })
      os.clock.advance(1000)
      await chunk('further', 'abcd')
      await expect(chunk('second', 'efgh', 4n)).rejects.toMatchObject({ code: 'FAILED_PRECONDITION' })
      await chunk('first', 'efgh', 4n)
    })

    it('drops those of a container, by the names that shims give them', async () => {
      const own = [
        ...['c1/file', 'c1-0123456789abcdef-hosts', 'passthrough/c1-01234567-volume/a/b', 'passthrough/c1/x'],
      ]
      const others = ['c12/file', 'c1-x-0123456789abcdef-hosts', 'c1-hosts', 'volume/c1', 'passthrough/x']
      for (const path of [...own, ...others]) await chunk(path, 'abcd')
      await copies.dropOf('c1')
      for (const path of own)
        await expect(chunk(path, 'efgh', 4n), path).rejects.toThrow('want offset 0 first')
      for (const path of others) await chunk(path, 'efgh', 4n)
      expect(os.files.openFolders).toBe(0)
    })

    it('waits no longer than five seconds for a file system that hangs', async () => {
      await chunk('file', 'abcd')
      const hang = Promise.withResolvers<void>()
      os.files.onWrite = () => hang.promise
      const hung = chunk('file', 'efgh', 4n)
      const dropped = copies.dropAll()
      await expect.poll(() => os.clock.sleeping).toBe(1)
      os.clock.advance(5000)
      await dropped
      expect(log.lines).toMatchObject([{ level: 'warn', message: 'unfinished files not removed' }])
      hang.resolve()
      await hung
    })
  })

  it('does not run a call whose caller leaves while it waits', async () => {
    const held = Promise.withResolvers<void>()
    os.files.onWrite = () => held.promise
    const first = copy('first', 'x')
    const caller = new AbortController()
    const second = copies.copy(
      CopyFileRequest.fromPartial({ path: `${ROOT}/second`, fileMode: FILE, dirMode: 0o755 }),
      callOf(caller.signal),
    )
    const gone = new AgentError('CANCELLED', 'gone')
    caller.abort(gone)
    await expect(second).rejects.toBe(gone)
    held.resolve()
    await first
    expect(await tree()).toEqual({ first: 'x' })
  })

  describe.each([
    ['a file in new folders', 'a/b/file', 'x', FILE],
    ['a file over a file', 'file', 'new', FILE],
    ['a link in a new folder', 'a/link', 'x', LINK],
    ['a link over a file', 'file', 'x', LINK],
    ['a new directory', 'a/b', '', FOLDER],
  ])('undoes the copy of %s', (_what, path, text, fileMode) => {
    it('at whichever step it fails', async () => {
      await copy('file', 'old')
      await copy('kept/file', 'old')
      const before = await tree()
      const faults = { left: 0 }
      const state = new StateStore(saved)
      copies = new FileCopies({ ...parts(), os: { ...os, files: failing(os.files, faults) }, state })
      let steps = 0
      for (; ; steps++) {
        faults.left = steps + 1
        const failed = await copy(path, text, { fileMode }).then(
          () => false,
          () => true,
        )
        expect(os.files.openFolders, `step ${steps}`).toBe(0)
        if (!failed) break
        expect(await tree(), `step ${steps}`).toEqual(before)
      }
      expect(steps).toBeGreaterThan(3)
      expect(log.lines).toEqual([])
    })
  })
})

/** The folders fail with EIO at the `left`th call from now. */
function failing(files: Files, faults: { left: number }): Files {
  const strike = () => {
    faults.left -= 1
    if (faults.left === 0) throw kernelError('call', 'folder', 'EIO')
  }
  const wrapped = <T extends object>(part: T): T =>
    new Proxy(part, {
      get(target, key) {
        const member: unknown = Reflect.get(target, key, target)
        if (typeof member !== 'function') return member
        if (key === 'close') return member.bind(target)
        return async (...args: unknown[]) => {
          strike()
          const result: unknown = await member.apply(target, args.map(unwrapped))
          return isOpened(result) ? keep(wrapped(result), result) : result
        }
      },
    })
  return wrapped(files)
}

const originals = new WeakMap<object, object>()

function keep<T extends object>(proxy: T, original: object): T {
  originals.set(proxy, original)
  return proxy
}

/** A folder accepts only other folders of its own kind. */
function unwrapped(argument: unknown): unknown {
  return typeof argument === 'object' && argument !== null ? (originals.get(argument) ?? argument) : argument
}

function isOpened(result: unknown): result is Folder {
  return typeof result === 'object' && result !== null && 'close' in result
}
