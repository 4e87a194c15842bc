import { beforeEach, describe, expect, it } from 'vitest'
import { cancelled, neverAborted } from '../../../src/base/abort.ts'
import { jsonLogger } from '../../../src/base/log.ts'
import type { Storage } from '../../../src/gen/agent.ts'
import { createStorageHandlers, type StorageHandlers } from '../../../src/handlers/storage/storage.ts'
import { eventLog } from '../../support/fakes/event-log.ts'
import { FakeOs } from '../../support/fakes/fake-os.ts'
import { dependenciesOf, ROOT, storageOf } from '../../support/handlers/storage/storage-builder.ts'
import { parseLogLine } from '../../support/log-lines.ts'

const DISK = `${ROOT}/sandbox/storage/disk`
const SHM = `${ROOT}/sandbox/shm`

describe('createStorageHandlers', () => {
  let os: FakeOs
  let handlers: StorageHandlers

  beforeEach(async () => {
    os = new FakeOs()
    await os.files.makeSpecial('/dev/vdb', { kind: 'block', major: 254, minor: 16 })
    handlers = createStorageHandlers(dependenciesOf(os))
  })

  describe('attach', () => {
    it('attaches the storages in their order', async () => {
      await expect(attach(shm(), disk())).resolves.toEqual({ mountPoints: [SHM, DISK] })
      expect(os.mounts.requests.map(({ target }) => target)).toEqual([SHM, DISK])
    })

    it('treats a mount point with a trailing slash as the same, and releases it', async () => {
      const attached = await attach(disk({ mountPoint: `${DISK}/` }))
      expect(attached).toEqual({ mountPoints: [DISK] })
      await attach(disk())
      expect(os.mounts.requests.map(({ target }) => target)).toEqual([DISK])
      await handlers.release(attached)
      await handlers.release(attached)
      expect(os.mounts.isMountPoint(DISK)).toBe(false)
    })

    it('mounts a mount point once, whatever the number of references', async () => {
      await attach(disk())
      await attach(disk(), disk())
      expect(os.mounts.requests).toHaveLength(1)
    })

    it('refuses a new reference when the disk was removed, and keeps the others', async () => {
      const attached = await attach(disk())
      await os.files.removeFile('/dev/vdb')
      await expect(attach(disk())).rejects.toMatchObject({
        code: 'FAILED_PRECONDITION',
        message: `storage ${DISK}: disk /dev/vdb was removed`,
      })
      expect(os.mounts.isMountPoint(DISK)).toBe(true)
      await handlers.release(attached)
      expect(os.mounts.isMountPoint(DISK)).toBe(false)
    })

    it.each([
      ['driver', { driver: 'mmioblk' }, 'mmioblk "/dev/vdb" with fstype "ext4"'],
      ['source', { source: '/dev/vdc' }, 'blk "/dev/vdc" with fstype "ext4"'],
      ['fstype', { fstype: 'xfs' }, 'blk "/dev/vdb" with fstype "xfs"'],
    ])('refuses a storage of another %s where one is attached', async (_field, change, asked) => {
      await os.files.makeSpecial('/dev/vdc', { kind: 'block', major: 254, minor: 32 })
      const attached = await attach(disk())
      await expect(attach(disk(change))).rejects.toMatchObject({
        code: 'FAILED_PRECONDITION',
        message: `storage ${DISK}: ${asked}, want blk "/dev/vdb" with fstype "ext4", which is attached there`,
      })
      await handlers.release(attached)
      expect(os.mounts.isMountPoint(DISK)).toBe(false)
    })

    it('does not let an absent disk join a directory', async () => {
      await attach(shm({ driver: 'local', source: 'local', fstype: 'local', mountPoint: DISK }))
      await expect(attach(disk({ source: '/dev/vdz' }))).rejects.toMatchObject({
        code: 'FAILED_PRECONDITION',
      })
    })

    it('refuses another storage where memory stayed attached without references', async () => {
      await handlers.release(await attach(shm()))
      await expect(attach(disk({ mountPoint: SHM }))).rejects.toMatchObject({ code: 'FAILED_PRECONDITION' })
      expect(os.mounts.isMountPoint(SHM)).toBe(true)
      await expect(attach(shm())).resolves.toEqual({ mountPoints: [SHM] })
    })

    it('lets a disk join under its other name, and one that is attached anew be another', async () => {
      await os.files.put('/sys/devices/pci0000:00/0000:00:02.0/virtio4/block/vdb/dev', '254:16\n')
      const attached = await attach(disk())
      const joined = await attach(disk({ source: '02' }))
      await handlers.release(joined)
      await handlers.release(attached)
      await os.files.makeSpecial('/dev/vdc', { kind: 'block', major: 254, minor: 32 })
      await expect(attach(disk({ source: '/dev/vdc' }))).resolves.toEqual({ mountPoints: [DISK] })
    })

    it('lets a request with other options join, and warns of them once', async () => {
      const lines: string[] = []
      const sink = (line: string) => void lines.push(line)
      const log = jsonLogger({ sink, level: () => 'warn', version: '', pid: 1 })
      handlers = createStorageHandlers({ ...dependenciesOf(os), log })
      await attach(disk({ options: ['noatime'] }))
      await attach(
        disk({ options: ['noatime', 'nodev'] }),
        disk({ options: [] }),
        disk({ options: ['noatime'] }),
      )
      expect(os.mounts.requests).toHaveLength(1)
      expect(lines.map(parseLogLine)).toMatchObject([
        {
          msg: 'storage keeps the options of its first request',
          options: 'noatime',
          requested: 'noatime,nodev',
        },
      ])
    })

    it('refuses to write to a read-only storage, and reads a writable one', async () => {
      const attached = await attach(disk({ options: ['ro'] }))
      await expect(attach(disk({ options: ['rw'] }))).rejects.toMatchObject({
        code: 'FAILED_PRECONDITION',
        message: `storage ${DISK}: is attached read-only, want option ro`,
      })
      await handlers.release(attached)
      await attach(disk())
      await expect(attach(disk({ options: ['ro'] }))).resolves.toEqual({ mountPoints: [DISK] })
    })

    it('ignores a trailing slash of a mount point', async () => {
      const slashed = disk({ mountPoint: `${DISK}/` })
      await expect(attach(slashed, disk())).resolves.toEqual({ mountPoints: [DISK, DISK] })
      expect(os.mounts.requests.map(({ target }) => target)).toEqual([DISK])
    })

    it('releases the earlier storages when one fails, so that a retry mounts again', async () => {
      await expect(attach(disk(), shm({ options: ['loop'] }))).rejects.toThrow('mount option loop')
      expect(os.mounts.isMountPoint(DISK)).toBe(false)
      await attach(disk())
      expect(os.mounts.isMountPoint(DISK)).toBe(true)
    })

    it('releases memory that the request attached, and keeps memory that existed before', async () => {
      await expect(attach(shm(), disk({ source: '' }))).rejects.toThrow()
      expect(os.mounts.isMountPoint(SHM)).toBe(false)
      await handlers.release(await attach(shm()))
      await expect(attach(shm(), disk({ source: '' }))).rejects.toThrow()
      expect(os.mounts.isMountPoint(SHM)).toBe(true)
    })

    it('removes a directory that the request created, and keeps one that existed before', async () => {
      const local = shm({ driver: 'local', mountPoint: `${ROOT}/local/volume` })
      const wrong = shm({ source: '' })
      await expect(attach(local, wrong)).rejects.toThrow('source is empty')
      expect(await os.files.list(`${ROOT}/local`)).toEqual([])
      await os.files.makeDirectories(local.mountPoint)
      await mountAt(local.mountPoint)
      await expect(attach(local, wrong)).rejects.toThrow('source is empty')
      expect(await os.files.list(`${ROOT}/local`)).toEqual(['volume'])
      expect(os.mounts.isMountPoint(local.mountPoint)).toBe(true)
    })

    it('keeps storages with other references when a request fails', async () => {
      await attach(disk())
      await expect(attach(disk(), shm({ source: '' }))).rejects.toThrow('source is empty')
      expect(os.mounts.isMountPoint(DISK)).toBe(true)
    })

    it('refuses an unknown driver and registers nothing', async () => {
      await expect(attach(disk({ driver: 'nfs' }))).rejects.toMatchObject({
        message: 'Failed to find the storage handler nfs',
      })
      await attach(disk())
      expect(os.mounts.requests).toHaveLength(1)
    })

    it.each([
      ['blk-ccw', 'only supported on s390x'],
      ['image_guest_pull', 'not supported, this guest has no helper that pulls images'],
    ])('answers UNIMPLEMENTED for the driver %s, and why', async (driver, reason) => {
      const attaching = expect(attach(disk({ driver }))).rejects
      await attaching.toMatchObject({ code: 'UNIMPLEMENTED' })
      await attaching.toThrow(`storage driver ${driver}: ${reason}`)
      expect(os.mounts.requests).toEqual([])
    })

    it.each(['blk', 'ephemeral', 'local'])(
      'mounts nothing unencrypted with the driver %s when encryption is requested, and does not quote the key',
      async (driver) => {
        const key = 'encryption_key=s3cret'
        const withKey = (...more: string[]) => attach(disk({ driver, driverOptions: [key, ...more] }))
        const bare = expect(withKey()).rejects
        await bare.toMatchObject({ code: 'INVALID_ARGUMENT' })
        await bare.toThrow(`storage ${DISK}: encryption_key requires create_filesystem`)
        const whole = expect(withKey('create_filesystem')).rejects
        await whole.toMatchObject({ code: 'UNIMPLEMENTED' })
        await whole.toThrow(
          `storage ${DISK}: encryption_key is not supported, this guest has no encryption helper`,
        )
        expect([os.mounts.requests, os.tools.calls, os.files.has(DISK)]).toEqual([[], [], false])
      },
    )

    it.each(['/etc', `${ROOT}/../../etc`, 'relative', ''])(
      'refuses the mount point %j',
      async (mountPoint) => {
        await expect(attach(shm({ mountPoint }))).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' })
        expect(os.mounts.requests).toEqual([])
      },
    )

    it('refuses a text with a NUL byte', async () => {
      await expect(attach(shm({ options: ['size=1M\0,suid'] }))).rejects.toThrow('contains a NUL')
    })

    it('does nothing for an aborted call', async () => {
      const attaching = handlers.attach([disk()], 'c1', AbortSignal.abort(cancelled()))
      await expect(attaching).rejects.toMatchObject({ code: 'CANCELLED' })
      expect(os.mounts.requests).toEqual([])
    })
  })

  describe('attach of a mount point that is being attached', () => {
    it('waits for the outcome of the other call and shares it', async () => {
      const [release, first] = slowMount()
      const second = attach(disk())
      release()
      await Promise.all([first, second])
      expect(os.mounts.requests).toHaveLength(1)
    })

    it('attaches by itself when the other call fails', async () => {
      const [release, first] = slowMount('EIO')
      const second = attach(disk())
      release()
      await expect(first).rejects.toThrow('EIO')
      await expect(second).resolves.toEqual({ mountPoints: [DISK] })
      expect(os.mounts.requests).toHaveLength(1)
    })

    it('keeps no reference when both fail', async () => {
      os.mounts.failWith = () => 'EIO'
      await Promise.allSettled([attach(disk()), attach(disk())])
      os.mounts.failWith = () => undefined
      await attach(disk())
      expect(os.mounts.isMountPoint(DISK)).toBe(true)
    })

    it('stops waiting when its own call is cancelled, and the other call continues', async () => {
      const [release, first] = slowMount()
      const call = new AbortController()
      const second = handlers.attach([disk()], 'c2', call.signal)
      call.abort(cancelled())
      await expect(second).rejects.toMatchObject({ code: 'CANCELLED' })
      release()
      const attached = await first
      await handlers.release(attached)
      expect(os.mounts.isMountPoint(DISK)).toBe(false)
    })
  })

  describe('release', () => {
    it('unmounts and removes storages without references', async () => {
      const [first, second] = [await attach(disk()), await attach(disk())]
      await handlers.release(first)
      expect(os.mounts.isMountPoint(DISK)).toBe(true)
      await handlers.release(second)
      expect(os.mounts.isMountPoint(DISK)).toBe(false)
      expect(await os.files.lstat(DISK)).toBeUndefined()
    })

    it('is reported, like the attachment, and listed until then', async () => {
      const events = eventLog()
      handlers = createStorageHandlers({ ...dependenciesOf(os), events })
      const attached = await attach(disk())
      expect(handlers.list()).toMatchObject([{ mountPoint: DISK, references: 1, state: 'attached' }])
      await handlers.release(attached)
      expect(handlers.list()).toEqual([])
      expect(events.after(0n, 10).events).toMatchObject([
        { storageChanged: { action: 'attached', mountPoint: DISK } },
        { storageChanged: { action: 'detached', mountPoint: DISK } },
      ])
    })

    it('releases the last storage first', async () => {
      const inner = `${DISK}/inner`
      await handlers.release(await attach(disk(), disk({ mountPoint: inner })))
      expect(os.mounts.isMountPoint(inner)).toBe(false)
      expect(os.mounts.isMountPoint(DISK)).toBe(false)
    })

    it('unmounts the mounts below a mount, the latest first', async () => {
      const attached = await attach(disk())
      for (const target of [`${DISK}/sub`, `${DISK}/sub/deep`, `${DISK}/other`]) await mountAt(target)
      await handlers.release(attached)
      expect(os.mounts.entries.map(({ mountPoint }) => mountPoint)).toEqual(['/'])
    })

    it('keeps another storage inside a mount, and the mount that contains it', async () => {
      const attached = await attach(disk())
      await mountAt(`${DISK}/sub`)
      const inner = await attach(shm({ mountPoint: `${DISK}/sub/inner` }))
      await mountAt(`${DISK}/sub/inner/deep`)
      await expect(handlers.release(attached)).rejects.toThrow(`unmount ${DISK}: EBUSY`)
      const left = ['/', DISK, `${DISK}/sub`, `${DISK}/sub/inner`, `${DISK}/sub/inner/deep`]
      expect(os.mounts.entries.map(({ mountPoint }) => mountPoint)).toEqual(left)
      await handlers.release(inner)
    })

    it('leaves the mounts in a directory alone', async () => {
      const mountPoint = `${ROOT}/local`
      const attached = await attach(shm({ driver: 'local', mountPoint }))
      await mountAt(`${mountPoint}/sub`)
      await handlers.release(attached)
      expect(os.mounts.isMountPoint(`${mountPoint}/sub`)).toBe(true)
    })

    it('keeps shared storages until the sandbox ends', async () => {
      await handlers.release(await attach(disk({ shared: true })))
      expect(os.mounts.isMountPoint(DISK)).toBe(true)
    })

    it('keeps a storage that any request marked as shared', async () => {
      await handlers.release(await attach(disk({ shared: true })))
      await handlers.release(await attach(disk()))
      expect(os.mounts.isMountPoint(DISK)).toBe(true)
    })

    it('still tracks kept storages when the mount table cannot be read', async () => {
      await handlers.release(await attach(shm()))
      const list = os.mounts.list.bind(os.mounts)
      os.mounts.list = async () => {
        os.mounts.list = list
        throw new Error('read /proc/self/mountinfo: ENOMEM')
      }
      await expect(attach(shm())).rejects.toThrow('ENOMEM')
      await attach(shm())
      expect(os.mounts.requests).toHaveLength(1)
    })

    it('keeps memory with its content for the next container', async () => {
      await handlers.release(await attach(shm()))
      expect(os.mounts.isMountPoint(SHM)).toBe(true)
      await attach(shm())
      expect(os.mounts.requests).toHaveLength(1)
    })

    it('mounts kept memory again when it was unmounted from outside', async () => {
      await handlers.release(await attach(shm()))
      await os.mounts.unmount(SHM)
      await attach(shm())
      expect(os.mounts.isMountPoint(SHM)).toBe(true)
    })

    it('accepts a mount that was unmounted from outside', async () => {
      const attached = await attach(disk())
      await os.mounts.unmount(DISK)
      await os.files.removeDirectory(DISK)
      await expect(handlers.release(attached)).resolves.toBeUndefined()
    })

    it('reports a failed unmount, and still releases the others', async () => {
      const other = `${ROOT}/sandbox/storage/other`
      const attached = await attach(disk(), disk({ mountPoint: other }))
      os.mounts.failWith = (call, target) => (call === 'unmount' && target === other ? 'EBUSY' : undefined)
      await expect(handlers.release(attached)).rejects.toThrow(`release storages: unmount ${other}: EBUSY`)
      expect(os.mounts.isMountPoint(DISK)).toBe(false)
    })

    it('neither mounts over a failed unmount nor reuses it for another storage', async () => {
      await os.files.makeSpecial('/dev/vdc', { kind: 'block', major: 254, minor: 32 })
      const attached = await attach(disk())
      os.mounts.failWith = (call) => (call === 'unmount' ? 'EBUSY' : undefined)
      await expect(handlers.release(attached)).rejects.toThrow('EBUSY')
      await expect(attach(disk({ source: '/dev/vdc' }))).rejects.toThrow(`unmount ${DISK}: EBUSY`)
      expect(os.mounts.requests).toHaveLength(1)
      os.mounts.failWith = () => undefined
      await attach(disk({ source: '/dev/vdc' }))
      expect(os.mounts.entries.filter(({ mountPoint }) => mountPoint === DISK)).toMatchObject([
        { source: '/dev/vdc' },
      ])
    })

    it('does not remove a directory that is not empty after the unmount', async () => {
      const attached = await attach(disk())
      await os.files.put(`${DISK}/precious`, '')
      await expect(handlers.release(attached)).rejects.toThrow('directory is not empty when clean up storage')
      expect(await os.files.lstat(`${DISK}/precious`)).toBeDefined()
    })

    it('makes an attach of the same mount point wait until it is detached', async () => {
      const attached = await attach(disk())
      const gate = Promise.withResolvers<void>()
      const unmount = os.mounts.unmount.bind(os.mounts)
      os.mounts.unmount = async (target) => {
        await gate.promise
        await unmount(target)
      }
      const releasing = handlers.release(attached)
      const attaching = attach(disk())
      gate.resolve()
      await Promise.all([releasing, attaching])
      expect(os.mounts.requests).toHaveLength(2)
      expect(os.mounts.isMountPoint(DISK)).toBe(true)
    })

    it('detaches kept storages when cleared, except those with references', async () => {
      const hugePages = '/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages'
      await os.files.put(hugePages, '0')
      const options = ['pagesize=2097152', 'size=4194304']
      const huge = shm({ mountPoint: `${ROOT}/sandbox/huge`, fstype: 'hugetlbfs', options })
      await handlers.release(await attach(shm(), huge))
      const used = await attach(disk())
      await handlers.clear()
      expect(os.mounts.entries.map(({ mountPoint }) => mountPoint)).toEqual(['/', DISK])
      expect(await os.files.readText(hugePages)).toBe('0')
      await handlers.release(used)
    })

    it('clears the others when one fails, and reports the error', async () => {
      await handlers.release(await attach(disk({ shared: true }), shm()))
      os.mounts.failWith = (call, target) => (call === 'unmount' && target === SHM ? 'EBUSY' : undefined)
      await expect(handlers.clear()).rejects.toThrow(`unmount ${SHM}: EBUSY`)
      expect(os.mounts.entries.map(({ mountPoint }) => mountPoint)).toEqual(['/', SHM])
    })

    it('distinguishes storages with references from kept ones', async () => {
      const attached = await attach(shm())
      expect([handlers.isUsed(SHM), handlers.isUsed(ROOT), handlers.isUsed(`${SHM}/x`)]).toEqual([
        true,
        true,
        false,
      ])
      await handlers.release(attached)
      expect(handlers.isUsed(SHM)).toBe(false)
    })

    it('fails for a storage that was released before', async () => {
      const attached = await attach(disk())
      await handlers.release(attached)
      await expect(handlers.release(attached)).rejects.toThrow(`storage ${DISK}: not in use`)
    })
  })

  function attach(...storages: Storage[]) {
    return handlers.attach(storages, 'c1', neverAborted)
  }

  function mountAt(target: string): Promise<void> {
    return os.mounts.mount({ source: 'x', target, type: 'tmpfs', flags: [], data: '' })
  }

  /** An attach whose mount continues, or fails, once it is released. */
  function slowMount(errno?: string) {
    const gate = Promise.withResolvers<void>()
    const mount = os.mounts.mount.bind(os.mounts)
    os.mounts.mount = async (request) => {
      os.mounts.mount = mount
      await gate.promise
      if (errno !== undefined) throw new Error(`mount ${request.target}: ${errno}`)
      await mount(request)
    }
    return [gate.resolve, attach(disk())] as const
  }
})

function disk(changes: Partial<Storage> = {}): Storage {
  return storageOf({ driver: 'blk', source: '/dev/vdb', fstype: 'ext4', mountPoint: DISK, ...changes })
}

function shm(changes: Partial<Storage> = {}): Storage {
  return storageOf({ mountPoint: SHM, ...changes })
}
