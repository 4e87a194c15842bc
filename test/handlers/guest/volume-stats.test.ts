import { beforeEach, describe, expect, it } from 'vitest'
import { cancelled, neverAborted } from '../../../src/base/abort.ts'
import { VolumeUsage_Unit } from '../../../src/gen/csi.ts'
import { volumeStats } from '../../../src/handlers/guest/volume-stats.ts'
import { kernelError } from '../../../src/os/errors.ts'
import type { FakeVolumes } from '../../support/fakes/fake-devices.ts'
import { FakeOs } from '../../support/fakes/fake-os.ts'

describe('volumeStats', () => {
  let volumes: FakeVolumes

  beforeEach(() => {
    volumes = new FakeOs().volumes
    const usage = { blockBytes: 4096n, blocks: 2n ** 51n, freeBlocks: 2n ** 50n }
    volumes.usages.set('/vol', { ...usage, inodes: 1000n, freeInodes: 900n })
  })

  it('reports the exact numbers of bytes and inodes', async () => {
    await expect(volumeStats(volumes, '/vol', neverAborted)).resolves.toEqual({
      usage: [
        { unit: VolumeUsage_Unit.BYTES, total: 2n ** 63n, available: 2n ** 62n, used: 2n ** 62n },
        { unit: VolumeUsage_Unit.INODES, total: 1000n, available: 900n, used: 100n },
      ],
      volumeCondition: { abnormal: false, message: 'OK' },
    })
  })

  it.each(['/vol/', '//vol', '/vol/.', '/other/../vol'])('finds the volume by the path %s', async (path) => {
    await expect(volumeStats(volumes, path, neverAborted)).resolves.toBeDefined()
  })

  it('refuses a path that the kernel would truncate', async () => {
    await expect(volumeStats(volumes, '/vol\0x', neverAborted)).rejects.toMatchObject({
      code: 'INVALID_ARGUMENT',
      message: 'volume_guest_path "/vol\\u0000x": contains a NUL byte',
    })
  })

  it.each(['', 'vol', './vol'])('refuses the path %j', async (path) => {
    await expect(volumeStats(volumes, path, neverAborted)).rejects.toMatchObject({
      code: 'INVALID_ARGUMENT',
      message: `volume_guest_path "${path}": not an absolute path`,
    })
  })

  it('fails when the path does not exist', async () => {
    await expect(volumeStats(volumes, '/gone', neverAborted)).rejects.toMatchObject({
      code: 'NOT_FOUND',
      message: 'volume_guest_path /gone: does not exist',
    })
  })

  it('passes on other errors of the kernel', async () => {
    volumes.usage = (path) => Promise.reject(kernelError('statfs', path, 'EIO'))
    const asked = volumeStats(volumes, '/vol', neverAborted)
    await expect(asked).rejects.toMatchObject({ code: 'INTERNAL', message: 'statfs /vol: EIO' })
  })

  it('stops waiting for a hung file system when the call is cancelled', async () => {
    volumes.usage = () => new Promise(() => {})
    const call = new AbortController()
    const asked = volumeStats(volumes, '/vol', call.signal)
    call.abort(cancelled())
    await expect(asked).rejects.toMatchObject({ code: 'CANCELLED' })
  })
})
