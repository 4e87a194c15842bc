import { beforeEach, describe, expect, it } from 'vitest'
import { neverAborted } from '../../../src/base/abort.ts'
import type { Storage } from '../../../src/gen/agent.ts'
import { StoragePayload_Phase as Phase } from '../../../src/gen/state/storage.ts'
import { createStorageHandlers, type StorageHandlers } from '../../../src/handlers/storage/storage.ts'
import { KINDS, StateStore } from '../../../src/state/state-store.ts'
import { FakeOs } from '../../support/fakes/fake-os.ts'
import { MemoryStateFiles } from '../../support/fakes/files/memory-state-files.ts'
import { dependenciesOf, ROOT, storageOf } from '../../support/handlers/storage/storage-builder.ts'

const DISK = `${ROOT}/sandbox/storage/disk`
const HUGE = '/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages'

const disk = storageOf({ driver: 'blk', source: '/dev/vdb', fstype: 'ext4', mountPoint: DISK })
const pages = storageOf({
  fstype: 'hugetlbfs',
  source: 'nodev',
  mountPoint: `${ROOT}/sandbox/huge`,
  options: ['pagesize=2097152', 'size=4194304'],
})
const local = storageOf({ driver: 'local', mountPoint: `${ROOT}/sandbox/local` })
const overlay = storageOf({
  driver: 'overlayfs',
  fstype: 'overlay',
  source: 'overlay',
  mountPoint: `${ROOT}/c1/rootfs`,
  options: ['lowerdir=/a', 'io.katacontainers.fs-opt.overlay-rw'],
})
const watched = storageOf({
  driver: 'watchable-bind',
  source: '/host/config',
  fstype: 'bind',
  mountPoint: `${ROOT}/shared/containers/watchable/config`,
})

describe('storages of an agent that died', () => {
  let os: FakeOs
  let files: MemoryStateFiles
  let before: StorageHandlers

  const agent = () => createStorageHandlers({ ...dependenciesOf(os), state: new StateStore(files) })
  const attach = (...storages: Storage[]) => before.attach(storages, 'c1', neverAborted)

  beforeEach(async () => {
    os = new FakeOs()
    files = new MemoryStateFiles()
    await os.files.makeSpecial('/dev/vdb', { kind: 'block', major: 254, minor: 16 })
    await os.files.put(HUGE, '1')
    await os.files.put('/host/config/key', 'value')
    before = agent()
  })

  it.each([
    ['a disk', disk],
    ['huge pages', pages],
    ['a directory', local],
    ['an overlay', overlay],
    ['a watched folder', watched],
  ])('continue: %s is joined, and released with its last reference', async (_what, storage) => {
    const clean = { mounts: os.mounts.entries.length, pages: await os.files.readText(HUGE) }
    await attach(storage)
    const attached = os.mounts.entries.length
    const after = agent()
    await after.restore(new Map([[storage.mountPoint, 1]]))
    await after.attach([storage], 'c2', neverAborted)
    expect(os.mounts.entries).toHaveLength(attached)
    for (let reference = 0; reference < 2; reference++)
      await after.release({ mountPoints: [storage.mountPoint] })
    await after.clear()
    expect(os.mounts.entries).toHaveLength(clean.mounts)
    expect(await os.files.readText(HUGE)).toBe(clean.pages)
    expect(files.names()).toEqual([])
    expect(await os.files.list(`${ROOT}/c1`)).toEqual([])
  })

  it('are detached when nothing refers to them', async () => {
    await attach(disk)
    await agent().restore(new Map())
    expect(os.mounts.isMountPoint(DISK)).toBe(false)
    expect(files.names()).toEqual([])
  })

  it.each([Phase.ATTACHING, Phase.DETACHING])(
    'are undone when a transition was under way (%s)',
    async (phase) => {
      await attach(disk)
      const store = new StateStore(files)
      const saved = store.require(KINDS.storage, 'storages/1')
      store.write(KINDS.storage, 'storages/1', { ...saved, phase, kind: '' })
      await agent().restore(new Map([[DISK, 1]]))
      expect(os.mounts.isMountPoint(DISK)).toBe(false)
      expect(files.names()).toEqual([])
    },
  )

  it.each([Phase.ATTACHING, Phase.DETACHING])(
    'are undone when a transition of a watched folder was under way (%s)',
    async (phase) => {
      const clean = os.mounts.entries.length
      await attach(watched)
      const store = new StateStore(files)
      const saved = store.require(KINDS.storage, 'storages/1')
      store.write(KINDS.storage, 'storages/1', {
        ...saved,
        phase,
        ...(phase === Phase.ATTACHING && { undo: {} }),
      })
      await agent().restore(new Map())
      expect(os.mounts.entries).toHaveLength(clean)
      expect(files.names()).toEqual([])
      store.write(KINDS.storage, 'storages/1', { ...saved, phase: Phase.DETACHING })
      await agent().restore(new Map())
      expect(files.names()).toEqual([])
    },
  )

  it('begins again with a watched folder whose agent died before it recorded it', async () => {
    const clean = os.mounts.entries.length
    await attach(watched)
    files.remove('storages/1')
    const after = agent()
    await after.restore(new Map())
    await after.attach([watched], 'c1', neverAborted)
    await after.release({ mountPoints: [watched.mountPoint] })
    expect(os.mounts.entries).toHaveLength(clean)
  })

  it('notices that the disk was removed meanwhile', async () => {
    await attach(disk)
    const after = agent()
    await after.restore(new Map([[DISK, 1]]))
    await os.files.removeFile('/dev/vdb')
    await expect(after.attach([disk], 'c2', neverAborted)).rejects.toThrow()
  })

  it('keeps the copy of a watched folder up to date', async () => {
    await attach(watched)
    const after = agent()
    await after.restore(new Map([[watched.mountPoint, 1]]))
    await os.files.put('/host/config/key', 'changed')
    os.clock.advance(2000)
    await expect.poll(() => os.files.readText(`${watched.mountPoint}/key`)).toBe('changed')
    await after.release({ mountPoints: [watched.mountPoint] })
  })

  it('refuses state that it cannot read, before it changes anything', async () => {
    await attach(disk)
    files.write('storages/2', Buffer.from('damaged'))
    await expect(agent().restore(new Map())).rejects.toThrow('state storages/2')
    expect(os.mounts.isMountPoint(DISK)).toBe(true)
  })
})
