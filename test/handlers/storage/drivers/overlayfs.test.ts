import { beforeEach, describe, expect, it } from 'vitest'
import { neverAborted } from '../../../../src/base/abort.ts'
import type { Storage } from '../../../../src/gen/agent.ts'
import { overlayfs } from '../../../../src/handlers/storage/drivers/overlayfs.ts'
import { storageDriverContract } from '../../../support/contracts/storage-driver.ts'
import { FakeOs } from '../../../support/fakes/fake-os.ts'
import { dependenciesOf, ROOT, storageOf } from '../../../support/handlers/storage/storage-builder.ts'

const CREATE = 'io.katacontainers.volume.overlayfs.create_directory'
const WRITABLE = 'io.katacontainers.fs-opt.overlay-rw'
const LOWER = `lowerdir=${ROOT}/a:${ROOT}/b`

storageDriverContract('overlayfs', { driver: overlayfs, storage: overlay({ options: [LOWER] }) })
storageDriverContract('overlayfs with a layer of its own', {
  driver: overlayfs,
  storage: overlay({ options: [LOWER, WRITABLE] }),
})

describe('overlayfs', () => {
  let os: FakeOs

  beforeEach(() => {
    os = new FakeOs()
  })

  it('mounts the layers as they are given', async () => {
    await attach({ options: [LOWER, 'ro'] })
    expect(os.mounts.requests).toMatchObject([
      { type: 'overlay', source: 'none', flags: ['ro'], data: LOWER },
    ])
  })

  it('does not pass options for the agent to the kernel', async () => {
    await attach({ options: [LOWER, 'io.katacontainers.fs-opt.layer=YQ=='] })
    expect(os.mounts.requests[0]?.data).toBe(LOWER)
  })

  it("creates a writable layer in the container's folder and removes it with the storage", async () => {
    const attachment = await attach({ fstype: 'any', options: [LOWER, WRITABLE] })
    const layers = `upperdir=${ROOT}/c1/upper,workdir=${ROOT}/c1/work`
    expect(os.mounts.requests[0]).toMatchObject({ type: 'overlay', data: `${LOWER},${layers}` })
    expect((await os.files.list(`${ROOT}/c1`)).filter((name) => name !== 'rootfs')).toEqual(['upper', 'work'])
    await attachment.onRemove?.()
    expect((await os.files.list(`${ROOT}/c1`)).filter((name) => name !== 'rootfs')).toEqual([])
  })

  it('gives each of several storages of a container a writable layer of its own', async () => {
    const first = await attach({ options: [LOWER, WRITABLE] })
    const second = await attach({ options: [LOWER, WRITABLE], mountPoint: `${ROOT}/c1/data` })
    const layers = `upperdir=${ROOT}/c1/upper-2,workdir=${ROOT}/c1/work-2`
    expect(os.mounts.requests[1]?.data).toBe(`${LOWER},${layers}`)
    await first.onRemove?.()
    expect(await os.files.list(`${ROOT}/c1`)).toEqual(['data', 'rootfs', 'upper-2', 'work-2'])
    await second.onRemove?.()
    expect(await os.files.list(`${ROOT}/c1`)).toEqual(['data', 'rootfs'])
  })

  it('removes the layer when the mount fails', async () => {
    os.mounts.failWith = () => 'EINVAL'
    await expect(attach({ options: [LOWER, WRITABLE] })).rejects.toThrow('EINVAL')
    expect(await os.files.list(`${ROOT}/c1`)).toEqual([])
  })

  it('refuses a writable layer to the sandbox, which has no folder for it', async () => {
    const request = { ...dependenciesOf(os), owner: undefined }
    const attaching = overlayfs.attach(overlay({ options: [LOWER, WRITABLE] }), request, neverAborted)
    await expect(attaching).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' })
  })

  it('creates the requested folders for layers', async () => {
    await attach({ driverOptions: [`${CREATE}=${ROOT}/x/upper`, `${CREATE}=${ROOT}/x/work`] })
    expect(await os.files.list(`${ROOT}/x`)).toEqual(['upper', 'work'])
  })

  it('keeps the folders of layers, which other storages may use', async () => {
    const driverOptions = [`${CREATE}=${ROOT}/x/upper`]
    const attachment = await attach({ driverOptions })
    await attach({ driverOptions, mountPoint: `${ROOT}/c2/rootfs` })
    await os.files.put(`${ROOT}/x/upper/precious`, '')
    await attachment.onRemove?.()
    expect(await os.files.list(`${ROOT}/x/upper`)).toEqual(['precious'])
  })

  it('removes the folders of layers when the mount fails', async () => {
    os.mounts.failWith = () => 'EINVAL'
    await expect(attach({ driverOptions: [`${CREATE}=${ROOT}/x/upper`] })).rejects.toThrow('EINVAL')
    expect(await os.files.list(`${ROOT}/x`)).toEqual([])
  })

  it.each(['/etc/x', `${ROOT}/../etc`, ''])('creates no folder at %j, and mounts nothing', async (folder) => {
    const driverOptions = [`${CREATE}=${ROOT}/x/upper`, `${CREATE}=${folder}`]
    await expect(attach({ driverOptions })).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' })
    expect(os.mounts.requests).toEqual([])
    expect(await os.files.list(`${ROOT}/x`)).toEqual([])
  })

  const attach = (changes: Partial<Storage>) =>
    overlayfs.attach(overlay(changes), dependenciesOf(os), neverAborted)
})

function overlay(changes: Partial<Storage>): Storage {
  const mountPoint = `${ROOT}/c1/rootfs`
  return storageOf({ driver: 'overlayfs', source: 'none', fstype: 'overlay', mountPoint, ...changes })
}
