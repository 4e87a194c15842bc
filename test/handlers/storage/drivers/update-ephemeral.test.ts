import { describe, expect, it } from 'vitest'
import { neverAborted } from '../../../../src/base/abort.ts'
import { updateEphemeral } from '../../../../src/handlers/storage/drivers/ephemeral.ts'
import { createStorageHandlers } from '../../../../src/handlers/storage/storage.ts'
import { FakeOs } from '../../../support/fakes/fake-os.ts'
import { dependenciesOf, ROOT, storageOf } from '../../../support/handlers/storage/storage-builder.ts'

const SHM = `${ROOT}/sandbox/shm`

describe('updateEphemeral', () => {
  it('mounts again with the options except fsgid', async () => {
    const os = new FakeOs()
    await createStorageHandlers(dependenciesOf(os)).attach([storageOf()], 'none', neverAborted)
    const options = ['remount', 'size=64M', 'noexec', 'fsgid=1000']
    await updateEphemeral(dependenciesOf(os), [storageOf({ options })], neverAborted)
    expect(os.mounts.requests.at(-1)).toEqual({
      source: 'tmpfs',
      target: SHM,
      type: 'tmpfs',
      flags: ['remount', 'noexec'],
      data: 'size=64M',
    })
    expect(os.mounts.isMountPoint(SHM)).toBe(true)
  })

  it('only creates the mount point when there are no options', async () => {
    const os = new FakeOs()
    await updateEphemeral(dependenciesOf(os), [storageOf()], neverAborted)
    expect((await os.files.stat(SHM))?.kind).toBe('directory')
    expect(os.mounts.requests).toEqual([])
  })

  it('changes nothing when one storage has another driver', async () => {
    const os = new FakeOs()
    const storages = [storageOf({ options: ['remount'] }), storageOf({ driver: 'blk' })]
    await expect(updateEphemeral(dependenciesOf(os), storages, neverAborted)).rejects.toMatchObject({
      code: 'INVALID_ARGUMENT',
      message: `storage ${SHM}: driver "blk" cannot be updated, want ephemeral`,
    })
    expect(os.mounts.requests).toEqual([])
  })

  it.each(['/etc', `${ROOT}/../etc`, 'relative'])('refuses the mount point %s', async (mountPoint) => {
    const os = new FakeOs()
    const update = updateEphemeral(
      dependenciesOf(os),
      [storageOf({ mountPoint, options: ['remount'] })],
      neverAborted,
    )
    await expect(update).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' })
    expect(os.mounts.requests).toEqual([])
  })

  it("reports the kernel's error", async () => {
    const os = new FakeOs()
    os.mounts.failWith = () => 'EINVAL'
    const update = updateEphemeral(dependenciesOf(os), [storageOf({ options: ['remount'] })], neverAborted)
    await expect(update).rejects.toMatchObject({ code: 'INTERNAL', message: `mount ${SHM}: EINVAL` })
  })
})
