import { describe, expect, it } from 'vitest'
import { SavedMachine, Specification } from '../../../src/gen/microvm/instance/v1/instance.ts'
import { InstanceRecord } from '../../../src/gen/microvm/instance/v1/records.ts'
import { DEFAULT_QUOTA, type Quota } from '../../../src/host/instance/record/quota.ts'
import { SavedRoom } from '../../../src/host/instance/record/saved-room.ts'

/** A host with the saved machines of the list; each instance has 64 MiB. */
function place(quota: Partial<Quota>) {
  const saved: SavedMachine[] = []
  const room = new SavedRoom(
    { list: async () => [...saved] },
    new Map([['anne', { ...DEFAULT_QUOTA, ...quota }]]),
  )
  const instance = (key: string, tenant = 'anne') => ({
    record: InstanceRecord.fromPartial({
      properties: { key, tenant },
      specification: Specification.fromPartial({ board: { memoryMib: 64n } }),
    }),
    all: () => [],
  })
  /** Saves an instance until `finish` is called. */
  const begin = (key: string, tenant?: string) => {
    const { promise, resolve: finish } = Promise.withResolvers<void>()
    const done = room.within(instance(key, tenant), async () => {
      await promise
      saved.push(SavedMachine.fromPartial({ key, name: key, tenant: 'anne', sizeBytes: 64n * 2n ** 20n }))
    })
    return { done, finish }
  }
  return { begin, room, instance }
}

const refused = (answer: Promise<unknown>, message: string) =>
  expect(answer).rejects.toMatchObject({ code: 'RESOURCE_EXHAUSTED', message: `tenant anne: ${message}` })

describe('the room for saved machines', () => {
  it('is for as many of those that are saved at once as the quota has', async () => {
    const { begin } = place({ savedMachines: 2 })
    const all = ['a', 'b', 'c', 'd'].map((key) => begin(key))
    for (const { finish } of all) finish()
    const outcomes = await Promise.allSettled(all.map(({ done }) => done))
    expect(outcomes.filter(({ status }) => status === 'fulfilled')).toHaveLength(2)
    await refused(begin('e').done, '3 saved machines, want at most 2')
  })

  it('is taken by the memory of one that is being saved', async () => {
    const { begin, instance, room } = place({ savedMib: 127 })
    const first = begin('a')
    await refused(begin('b').done, '128 MiB of saved machines, want at most 127')
    const others = room.within(instance('c', ''), async () => 'another tenant has its own')
    expect(await others).toBe('another tenant has its own')
    first.finish()
    await first.done
    await refused(begin('b').done, '128 MiB of saved machines, want at most 127')
  })

  it('is given back when nothing was saved', async () => {
    const { begin, instance, room } = place({ savedMachines: 1 })
    const failing = room.within(instance('a'), async () => Promise.reject(new Error('the disk is full')))
    await expect(failing).rejects.toThrow('the disk is full')
    const next = begin('a')
    next.finish()
    await next.done
  })
})
