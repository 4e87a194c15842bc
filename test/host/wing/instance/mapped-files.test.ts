import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { File_Access } from '../../../../src/gen/microvm/instance/v1/instance.ts'
import type { Instances } from '../../../../src/host/instance/instances.ts'
import { memoryRegistry } from '../../../../src/host/instance/registry/memory-registry.ts'
import { openDisk } from '../../../../src/host/root-disk/disk.ts'
import { temporaryFolder } from '../../../support/temporary-folder.ts'
import { image, lifePlan, openReal } from '../../../support/wing/real-wing.ts'
import { ADMIN, ensureRequest } from '../../../support/wing/requests.ts'

const MIB = 128

describe('a file that QEMU maps as persistent memory', () => {
  let disks: string
  let path: string
  let instances: Instances

  beforeEach(async () => {
    const folder = temporaryFolder()
    disks = join(folder, 'disks')
    lifePlan(disks)
    path = image(disks, 'memory', MIB)
    instances = await openReal(folder, memoryRegistry())
  })

  afterEach(async () => {
    for (const { properties } of instances.list(ADMIN)) await instances.remove(properties?.key ?? '', ADMIN)
    await instances.close()
  })

  const kernel = () => join(disks, 'idle.kernel')
  const mapped = (key: string) =>
    instances.ensure(
      ensureRequest(key, {
        specification: {
          board: { kernel: kernel() },
          devices: { memory: { backend: 'file', persistentMemory: { sizeBytes: BigInt(MIB * 2 ** 20) } } },
          backends: { file: { file: { path, access: File_Access.READ_ONLY } } },
        },
      }),
      ADMIN,
    )
  const written = (key: string) =>
    instances.ensure(
      ensureRequest(key, {
        specification: {
          board: { kernel: kernel() },
          devices: { disk: { backend: 'file', slot: 3, disk: { serial: 'disk' } } },
          backends: { file: { file: { path, access: File_Access.READ_WRITE } } },
        },
      }),
      ADMIN,
    )
  const isUsedBy = (who: string) => ({
    code: 'FAILED_PRECONDITION',
    message: expect.stringContaining(`${path}: in use by ${who}`),
  })

  it('is shared with other readers, and with no writer', async () => {
    await mapped('one')
    await mapped('two')
    await expect(written('three')).rejects.toMatchObject(isUsedBy('instance one'))
    await instances.remove('one', ADMIN)
    await instances.remove('two', ADMIN)
    await written('three')
    await expect(mapped('one')).rejects.toMatchObject(isUsedBy('instance three'))
  })

  it('is not taken from a download that fills it', async () => {
    const disk = await openDisk(path)
    await expect(mapped('one')).rejects.toMatchObject(isUsedBy('another process'))
    await disk.close()
    await mapped('one')
  })
})
