import { describe, expect, it } from 'vitest'
import { MovedRecord } from '../../../src/gen/microvm/instance/v1/records.ts'
import {
  forgetMoved,
  hostsBefore,
  movedAway,
  movedRows,
} from '../../../src/host/instance/moving/moved-away.ts'
import { memoryRegistry } from '../../../src/host/instance/registry/memory-registry.ts'

const DAY_MS = 86_400_000n

describe('movedRows', () => {
  const registry = memoryRegistry()
  const add = async (key: string, timeMs: bigint) => {
    const moved = { host: 'b', endpoint: 'b:7443', timeMs }
    await registry.commit(await movedRows(registry, MovedRecord.fromPartial({ key, moved })))
  }
  const isKept = async (key: string) => (await movedAway(registry, key, { tenant: undefined })) !== undefined

  it('leaves the last 1,000 machines of 30 days', async () => {
    for (let day = 0n; day <= 31n; day++) await add(`day${day}`, day * DAY_MS)
    expect([await isKept('day0'), await isKept('day1'), await isKept('day31')]).toEqual([false, true, true])
    for (let index = 0n; index < 1000n; index++) await add(`vm${index}`, 32n * DAY_MS + index)
    expect([await isKept('day31'), await isKept('vm0')]).toEqual([false, true])
    await add('vm0', 33n * DAY_MS)
    expect([await isKept('vm0'), await isKept('vm1')]).toEqual([true, true])
    expect((await registry.load('settings')).size).toBe(1000)
  })
})

describe('hostsBefore', () => {
  it('has the hosts of an earlier stay, but none of the machine of another tenant', async () => {
    const registry = memoryRegistry()
    const record = MovedRecord.fromPartial({ key: 'web', tenant: 't', moved: {}, cameFrom: ['a', 'b'] })
    await registry.commit(await movedRows(registry, record))
    expect(await hostsBefore(registry, 'web', { from: 'a', tenant: 't' })).toEqual(['b', 'a'])
    expect(await hostsBefore(registry, 'web', { from: 'x', tenant: 'u' })).toEqual(['x'])
    expect(await hostsBefore(registry, 'web', { from: 'x', tenant: '' })).toEqual(['x'])
    await registry.commit([forgetMoved('web')])
    expect(await movedAway(registry, 'web', { tenant: undefined })).toBeUndefined()
  })
})
