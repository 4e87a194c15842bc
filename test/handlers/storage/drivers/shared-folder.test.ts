import { beforeEach, describe, expect, it } from 'vitest'
import { neverAborted } from '../../../../src/base/abort.ts'
import { nineP, virtioFs } from '../../../../src/handlers/storage/drivers/shared-folder.ts'
import { createStorageHandlers } from '../../../../src/handlers/storage/storage.ts'
import { storageDriverContract } from '../../../support/contracts/storage-driver.ts'
import { FakeOs } from '../../../support/fakes/fake-os.ts'
import { dependenciesOf, ROOT, storageOf } from '../../../support/handlers/storage/storage-builder.ts'

const shared = { source: 'kataShared', mountPoint: `${ROOT}/shared/containers` }
const virtioShare = storageOf({ ...shared, driver: 'virtio-fs', fstype: 'virtiofs', options: ['nodev'] })
const nineShare = storageOf({
  ...shared,
  driver: '9p',
  fstype: '9p',
  options: ['trans=virtio,version=9p2000.L', 'nodev'],
})

storageDriverContract('virtio-fs', { driver: virtioFs, storage: virtioShare })
storageDriverContract('9p', { driver: nineP, storage: nineShare })

describe.each([
  ['virtio-fs', virtioFs, virtioShare, 'virtiofs'],
  ['9p', nineP, nineShare, '9p'],
] as const)('%s', (_, driver, storage, fileSystem) => {
  let os: FakeOs

  beforeEach(() => {
    os = new FakeOs()
  })

  it('mounts the folder by its tag', async () => {
    const attachment = await driver.attach(storage, dependenciesOf(os), neverAborted)
    expect(attachment).toEqual({ mountPoint: storage.mountPoint, kind: 'mount', keep: false })
    expect(os.mounts.requests).toMatchObject([{ source: 'kataShared', type: fileSystem, flags: ['nodev'] }])
  })

  it("leaves the sandbox's folder alone when it is already mounted", async () => {
    await os.mounts.mount({ ...storage, target: storage.mountPoint, type: fileSystem, flags: [], data: '' })
    const handlers = createStorageHandlers(dependenciesOf(os))
    const attached = await handlers.attach([storage, storage], 'c1', neverAborted)
    expect(attached.mountPoints).toEqual([storage.mountPoint, storage.mountPoint])
    expect(os.mounts.requests).toHaveLength(1)
    await handlers.release(attached)
    expect(os.mounts.isMountPoint(storage.mountPoint)).toBe(true)
  })

  it.each([
    ['another folder is mounted there', { source: 'other' }, {}],
    ['it is another folder that is mounted there', { source: 'other' }, { source: 'other' }],
    ['it is mounted elsewhere', { target: `${ROOT}/elsewhere` }, {}],
  ])('mounts when %s', async (_case, mounted, asked) => {
    const request = { source: 'kataShared', target: storage.mountPoint, type: fileSystem }
    await os.mounts.mount({ ...request, flags: [], data: '', ...mounted })
    await driver.attach({ ...storage, ...asked }, dependenciesOf(os), neverAborted)
    expect(os.mounts.requests).toHaveLength(2)
  })

  it('reports a kernel without the file system', async () => {
    os.mounts.failWith = () => 'ENODEV'
    const attaching = expect(driver.attach(storage, dependenciesOf(os), neverAborted)).rejects
    await attaching.toMatchObject({ code: 'UNIMPLEMENTED' })
    await attaching.toThrow(`storage ${storage.mountPoint}: the guest kernel has no ${fileSystem}`)
  })

  it('passes on other errors of the kernel', async () => {
    os.mounts.failWith = () => 'EIO'
    await expect(driver.attach(storage, dependenciesOf(os), neverAborted)).rejects.toThrow('EIO')
  })
})

describe('virtio-fs', () => {
  it('explains the error of an unknown tag', async () => {
    const os = new FakeOs()
    os.mounts.failWith = () => 'EINVAL'
    await expect(virtioFs.attach(virtioShare, dependenciesOf(os), neverAborted)).rejects.toThrow(
      `mount kataShared on ${virtioShare.mountPoint}: EINVAL: no virtio-fs device has this tag`,
    )
  })
})
