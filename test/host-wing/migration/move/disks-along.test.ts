import { describe, expect, it } from 'vitest'
import {
  Backend,
  Layer,
  MigrationTarget,
  Specification,
} from '../../../../src/gen/microvm/instance/v1/instance.ts'
import { InstanceRecord } from '../../../../src/gen/microvm/instance/v1/records.ts'
import { flattened, layersLeft } from '../../../../src/host/migration/move/disks-along.ts'

const encryption = { secret: '6b3f0c62-3d1e-4f0a-9a55-0f4f8f0c2d11' }
const encrypted = Backend.fromPartial({ file: { path: '/a/safe', encryption } })
const layerOf = (id: number, backend: string) => Layer.fromPartial({ id, backend, base: `/a/${backend}` })
const record = InstanceRecord.fromPartial({
  specification: Specification.fromPartial({
    backends: { root: { file: { path: '/a/root' } }, safe: encrypted },
  }),
  layers: [layerOf(1, 'root'), layerOf(2, 'root'), layerOf(3, 'safe')],
})

function targetWith(replaceComponents: Record<string, Backend>): MigrationTarget {
  return MigrationTarget.fromPartial({ replaceComponents })
}

describe('a machine whose disks go along', () => {
  it('has the layers of the other disks', () => {
    expect(flattened(record, ['root'], undefined).layers.map(({ id }) => id)).toEqual([3])
    expect(flattened(record, ['root', 'safe'], targetWith({ safe: encrypted })).layers).toEqual([])
    expect(layersLeft(record, [{ key: 'safe' }])).toEqual([expect.stringMatching(/^backends\.root: /)])
    expect(layersLeft(record, [{ key: 'safe' }, { key: 'root' }])).toEqual([])
  })

  it('loses no snapshot', () => {
    const kept = InstanceRecord.fromPartial({ ...record, snapshots: [{ name: 'monday' }] })
    expect(() => flattened(kept, ['root', 'safe'], undefined)).toThrow('snapshots: would be lost')
  })

  it.each([
    ['safe', undefined, 'none, want a secret as before'],
    ['root', encryption, 'a secret, want none as before'],
  ])('has disk %s encrypted as before', (key, other, text) => {
    // Copied or not.
    const target = targetWith({ [key]: Backend.fromPartial({ file: { path: '/b', encryption: other } }) })
    for (const keys of [[], [key]])
      expect(() => flattened(record, keys, target)).toThrow(`backends.${key}.file.encryption: ${text}`)
  })
})
