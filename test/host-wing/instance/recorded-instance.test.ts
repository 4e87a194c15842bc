import { describe, expect, it } from 'vitest'
import { silentLogger } from '../../../src/base/log.ts'
import { State } from '../../../src/gen/microvm/instance/v1/instance.ts'
import { InstanceRecord } from '../../../src/gen/microvm/instance/v1/records.ts'
import { InstanceChanges } from '../../../src/host/instance/record/changes.ts'
import { RecordedInstance } from '../../../src/host/instance/record/recorded-instance.ts'
import { Timeline, withOperation } from '../../../src/host/instance/record/timeline.ts'
import { memoryRegistry } from '../../../src/host/instance/registry/memory-registry.ts'

function recordedOf() {
  const registry = memoryRegistry()
  const parts = { key: 'web', registry, changes: new InstanceChanges(new Map(), 8), log: silentLogger() }
  const recorded = new RecordedInstance(parts, InstanceRecord.create(), [])
  const written = async () =>
    InstanceRecord.decode((await registry.load('instances')).get('web') ?? Buffer.of())
  return { recorded, written }
}

describe('what a guest tells of its repair', () => {
  it('can be written, whatever it is', async () => {
    const { recorded, written } = recordedOf()
    const timeline = new Timeline('resume')
    const step = { name: 'n'.repeat(1000), state: 's'.repeat(1000), durationMs: 2n ** 64n - 1n }
    timeline.guest(Array.from({ length: 1000 }, () => step))
    const operation = timeline.operation()
    await recorded.commit({ set: { operations: withOperation([], operation) }, kind: 'state', text: 'ended' })
    const [told] = (await written()).operations
    expect(told?.steps.length).toBe(64)
    for (const { durationUs, name, startUs, state } of told?.steps.slice(1) ?? []) {
      expect([name, state]).toEqual(['n'.repeat(64), 's'.repeat(64)])
      expect(startUs + durationUs).toBeLessThan(60_000_000n)
    }
  })
})

describe('what cannot be written of an instance', () => {
  it('leaves a step as it was before', async () => {
    const { recorded } = recordedOf()
    const before = recorded.step('move', ['before'])
    await recorded.commit({ add: [before], kind: 'state', text: 'begun' })
    const operations = [{ ...new Timeline('resume').operation(), durationUs: 2n ** 64n }]
    const change = { set: { operations }, add: [recorded.step('move', ['after'])], text: 'handed over' }
    await expect(recorded.commit({ ...change, kind: 'state' })).rejects.toThrow()
    expect(recorded.steps).toEqual([before])
  })

  it('is not kept, so what follows is written', async () => {
    const { recorded, written } = recordedOf()
    const operation = { ...new Timeline('resume').operation(), durationUs: 2n ** 64n }
    await recorded.note({ set: { operations: [operation] }, kind: 'state', text: 'ended' })
    await recorded.commit({ set: { current: State.STOPPED }, kind: 'state', text: 'stopped' })
    expect(await written()).toMatchObject({ current: State.STOPPED, operations: [] })
  })
})
