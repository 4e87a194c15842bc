import { beforeEach, describe, expect, it } from 'vitest'
import { neverAborted } from '../../../src/base/abort.ts'
import { StoragePayload_Phase as Phase, type StoragePayload } from '../../../src/gen/state/storage.ts'
import type { Attachment } from '../../../src/handlers/storage/attachment.ts'
import { type Acquisition, StorageReferences } from '../../../src/handlers/storage/references.ts'
import { KINDS, StateStore } from '../../../src/state/state-store.ts'
import { eventLog } from '../../support/fakes/event-log.ts'
import { FakeOs } from '../../support/fakes/fake-os.ts'
import { MemoryStateFiles } from '../../support/fakes/files/memory-state-files.ts'
import { recordingLog } from '../../support/fakes/recording-log.ts'
import { ROOT, storageOf } from '../../support/handlers/storage/storage-builder.ts'
import { settle } from '../../support/pending.ts'

const [A, B] = [`${ROOT}/a`, `${ROOT}/b`]

describe('StorageReferences', () => {
  let os: FakeOs
  let state: StateStore
  let files: MemoryStateFiles
  let references: StorageReferences
  let removed: string[]
  let events: ReturnType<typeof eventLog>
  const { log, lines } = recordingLog()

  beforeEach(() => {
    os = new FakeOs()
    files = new MemoryStateFiles()
    state = new StateStore(files)
    removed = []
    lines.length = 0
    events = eventLog()
    references = agent()
  })

  describe('acquire', () => {
    it('lists a storage while it is being attached, and records that', async () => {
      const gate = Promise.withResolvers<void>()
      const acquiring = acquire(A, { attach: () => gate.promise.then(() => mounted(A)) })
      await settle()
      expect(references.list()).toMatchObject([{ mountPoint: A, device: undefined, state: 'attaching' }])
      expect(recordOf(1)).toMatchObject({
        phase: Phase.ATTACHING,
        kind: '',
        keep: false,
        device: '',
        owner: '',
      })
      gate.resolve()
      expect(await acquiring).toBe('attached')
      expect(recordOf(1)).toMatchObject({ phase: Phase.ATTACHED, kind: 'mount' })
    })

    it('forgets a storage that could not be attached, and its record alone', async () => {
      await acquire(A)
      await expect(acquire(B, { attach: () => Promise.reject(new Error('EIO')) })).rejects.toThrow('EIO')
      expect([references.list().map(({ mountPoint }) => mountPoint), files.names()]).toEqual([
        [A],
        ['storages/1'],
      ])
    })

    it('keeps a storage that a later reference marks as shared, also for the next agent', async () => {
      await acquire(A)
      expect(await acquire(A, { shared: true })).toBe('reused')
      await references.release(A)
      await references.release(A)
      const after = await successor()
      expect(after.list()).toMatchObject([{ mountPoint: A, references: 0, shared: true, state: 'attached' }])
    })

    it('marks kept memory as shared only when that is asked', async () => {
      const outcomes: string[] = []
      for (const shared of [false, false, true]) {
        outcomes.push(await acquire(A, { shared, attach: () => mounted(A, { keep: true }) }))
        await references.release(A)
        expect([references.list()[0]?.shared, recordOf(1)?.shared]).toEqual([shared, shared])
      }
      expect(outcomes).toEqual(['attached', 'reused', 'reused'])
    })

    it('refuses a reference to a faulty storage, but not the one that attached it', async () => {
      const attach = () => mounted(A, { fault: async () => 'disk removed' })
      expect(await acquire(A, { attach })).toBe('attached')
      const message = `storage ${A}: disk removed`
      await expect(acquire(A)).rejects.toMatchObject({ code: 'FAILED_PRECONDITION', message })
      expect(references.list()).toMatchObject([{ references: 1 }])
    })

    it('attaches anew what was unmounted from outside, without anything to undo', async () => {
      const attach = async (): Promise<Attachment> => {
        await mounted(A)
        return { mountPoint: A, kind: 'mount', keep: true }
      }
      await acquire(A, { attach })
      await references.release(A)
      await os.mounts.unmount(A)
      expect(await acquire(A, { attach })).toBe('attached')
    })

    it('warns of other options once, also after a restart', async () => {
      const requested = [storageOf({ mountPoint: A, options: ['noexec'] })] as const
      await acquire(A)
      await acquire(A, { requested })
      references = await successor(new Map([[A, 2]]))
      await acquire(A, { requested })
      expect(lines).toHaveLength(1)
    })
  })

  describe('release', () => {
    it('fails for kept memory without a reference', async () => {
      await acquire(A, { shared: true })
      await references.release(A)
      await expect(references.release(A)).rejects.toMatchObject({
        code: 'INTERNAL',
        message: `storage ${A}: not in use`,
      })
    })

    it('lists a storage while it is being detached, and records that', async () => {
      const gate = Promise.withResolvers<void>()
      await acquire(A, { attach: () => mounted(A, { stop: () => gate.promise }) })
      const releasing = references.release(A)
      await settle()
      expect(references.list()).toMatchObject([{ state: 'detaching' }])
      expect(recordOf(1)).toMatchObject({ phase: Phase.DETACHING })
      gate.resolve()
      await releasing
      expect([references.list(), files.names(), removed]).toEqual([[], [], [A]])
    })

    it('unmounts what is mounted beside another storage inside', async () => {
      await acquire(A)
      await mountAt(`${A}/other`)
      await acquire(`${A}/inner`)
      await expect(references.release(A)).rejects.toThrow('EBUSY')
      expect(os.mounts.entries.map(({ mountPoint }) => mountPoint)).toEqual(['/', A, `${A}/inner`])
    })
  })

  it('clears the newest first, and only forgets plain directories', async () => {
    for (const path of [A, B]) await acquire(path, { shared: true })
    const directory = `${ROOT}/directory`
    await acquire(directory, {
      attach: async () => attachmentOf(directory, { kind: 'directory', keep: true }),
    })
    for (const path of [A, B, directory]) await references.release(path)
    await references.clear()
    expect([removed, references.list(), files.names()]).toEqual([[B, A], [], []])
  })

  it('knows which of several storages is used', async () => {
    for (const path of [A, B]) await acquire(path, { shared: true })
    await references.release(B)
    expect([A, B, ROOT].map((path) => references.isUsed(path))).toEqual([true, false, true])
  })

  describe('restore', () => {
    it('continues with the owner, the device and the names of the previous agent', async () => {
      const attach = () => mounted(A, { device: '/dev/vdb' })
      await acquire(A, { attach, owner: 'c1' })
      await acquire(B)
      references = await successor(new Map([A, B].map((path) => [path, 1])))
      for (const path of [A, B, `${ROOT}/c`]) await acquire(path, { shared: true })
      expect(references.list().map(({ device }) => device)).toEqual(['/dev/vdb', undefined, undefined])
      expect([1, 2, 3].map((name) => recordOf(name)?.owner)).toEqual(['c1', '', ''])
      expect(recordOf(2)).toMatchObject({ keep: false, undo: {} })
    })

    it('retains kept storages without references, and reports that it detached the rest, the newest first', async () => {
      for (const path of [A, B]) await acquire(path)
      await acquire(`${ROOT}/c`, { attach: () => mounted(`${ROOT}/c`, { keep: true }) })
      const after = await successor()
      expect(after.list().map(({ mountPoint }) => mountPoint)).toEqual([`${ROOT}/c`])
      expect(removed).toEqual([B, A])
    })

    it.each([
      ['ATTACHING', [], []],
      ['DETACHING', ['detached'], [A]],
    ] as const)('undoes a storage in the phase %s', async (phase, told, left) => {
      await acquire(A)
      record(1, { phase: Phase[phase] })
      // An interrupted attach may have begun at a folder with content, which stays.
      await os.files.put(`${A}/precious`, '')
      events = eventLog()
      const after = await successor()
      const isWhole = phase === 'DETACHING'
      expect(after.list().map(({ mountPoint }) => mountPoint)).toEqual(left)
      expect(await os.files.readText(`${A}/precious`)).toBe('')
      expect(lines.map(({ message, fields }) => [message, fields.mountPoint])).toEqual(
        isWhole ? [['storage not detached', A]] : [],
      )
      await os.files.removeFile(`${A}/precious`)
      await successor()
      expect(events.after(0n, 10).events.map(({ storageChanged }) => storageChanged?.action)).toEqual(told)
    })

    it('refuses a record without a request', async () => {
      await acquire(A)
      record(1, { requested: [] })
      await expect(successor()).rejects.toMatchObject({
        code: 'INTERNAL',
        message: 'state storages/1: incomplete',
      })
    })
  })

  function agent(): StorageReferences {
    return new StorageReferences({ os, log, state, events })
  }

  async function successor(counts: ReadonlyMap<string, number> = new Map()): Promise<StorageReferences> {
    const after = agent()
    await after.restore(counts, async ({ mountPoint }) => ({
      onRemove: async () => void removed.push(mountPoint),
    }))
    return after
  }

  function acquire(mountPoint: string, changes: Partial<Acquisition> = {}): Promise<'attached' | 'reused'> {
    const acquisition: Acquisition = {
      mountPoint,
      shared: false,
      requested: [storageOf({ mountPoint })],
      owner: undefined,
      attach: () => mounted(mountPoint),
      deviceOf: undefined,
      ...changes,
    }
    return references.acquire(acquisition, neverAborted)
  }

  async function mounted(mountPoint: string, changes: Partial<Attachment> = {}): Promise<Attachment> {
    await os.files.makeDirectories(mountPoint)
    await mountAt(mountPoint)
    return attachmentOf(mountPoint, changes)
  }

  function attachmentOf(mountPoint: string, changes: Partial<Attachment>): Attachment {
    return {
      mountPoint,
      kind: 'mount',
      keep: false,
      onRemove: async () => void removed.push(mountPoint),
      ...changes,
    }
  }

  function mountAt(target: string): Promise<void> {
    return os.mounts.mount({ source: 'x', target, type: 'tmpfs', flags: [], data: '' })
  }

  function recordOf(name: number): StoragePayload | undefined {
    return state.read(KINDS.storage, `storages/${name}`)
  }

  function record(name: number, changes: Partial<StoragePayload>): void {
    const path = `storages/${name}`
    state.write(KINDS.storage, path, { ...state.require(KINDS.storage, path), ...changes })
  }
})
