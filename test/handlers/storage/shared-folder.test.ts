import { beforeEach, describe, expect, it } from 'vitest'
import { nineP } from '../../../src/handlers/storage/nine-p.ts'
import { virtioFs } from '../../../src/handlers/storage/virtio-fs.ts'
import { storageDriverContract } from '../../contracts/storage-driver.ts'
import { FakeOs } from '../../fakes/os/fake-os.ts'
import { dependenciesOf, noSignal, ROOT, storageOf } from './storage-builder.ts'

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
    const attachment = await driver.attach(storage, dependenciesOf(os), noSignal)
    expect(attachment).toEqual({ mountPoint: storage.mountPoint, kind: 'mount', keep: false })
    expect(os.mounts.requests).toMatchObject([{ source: 'kataShared', type: fileSystem, flags: ['nodev'] }])
  })

  it('says that the kernel does not have the file system', async () => {
    os.mounts.failWith = () => 'ENODEV'
    const attaching = expect(driver.attach(storage, dependenciesOf(os), noSignal)).rejects
    await attaching.toMatchObject({ code: 'UNIMPLEMENTED' })
    await attaching.toThrow(`storage ${storage.mountPoint}: the guest's kernel has no ${fileSystem}`)
  })

  it('hands on what else the kernel says', async () => {
    os.mounts.failWith = () => 'EIO'
    await expect(driver.attach(storage, dependenciesOf(os), noSignal)).rejects.toThrow('EIO')
  })
})

describe('virtio-fs', () => {
  it('says what an unknown tag looks like', async () => {
    const os = new FakeOs()
    os.mounts.failWith = () => 'EINVAL'
    await expect(virtioFs.attach(virtioShare, dependenciesOf(os), noSignal)).rejects.toThrow(
      `mount kataShared on ${virtioShare.mountPoint}: EINVAL: no virtio-fs device has this tag`,
    )
  })
})
