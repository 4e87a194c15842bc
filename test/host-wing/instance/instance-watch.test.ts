import { describe, expect, it } from 'vitest'
import {
  ChangeStateRequest_Change as Change,
  type InstanceChange,
  State,
} from '../../../src/gen/microvm/instance/v1/instance.ts'
import type { Caller, Instances } from '../../../src/host/instance/instances.ts'
import { ADMIN, ensureRequest, tenant } from '../../support/wing/requests.ts'
import { FakeWing } from '../../support/wing/wing.ts'

async function seen(instances: Instances, after: bigint, caller: Caller = ADMIN) {
  let lost = 0n
  const changes: InstanceChange[] = []
  for await (const answer of instances.watch({ after, once: true }, caller)) {
    lost += answer.lost
    changes.push(...answer.changes)
  }
  return { lost, changes }
}

describe('watching instances', () => {
  it('tells each change once, in the order of its number, and only to those who may see it', async () => {
    const instances = await new FakeWing().open()
    await instances.ensure(ensureRequest('web'), tenant('red'))
    await instances.remove('web', ADMIN)
    const { lost, changes } = await seen(instances, 0n, tenant('red'))
    expect([lost, changes.map(({ kind }) => kind)]).toEqual([0n, ['created', 'state', 'state', 'removed']])
    const numbers = changes.map(({ sequence }) => sequence)
    expect(numbers).toEqual(numbers.toSorted())
    expect(await seen(instances, 0n, tenant('blue'))).toEqual({ lost: 0n, changes: [] })
    expect((await seen(instances, numbers[1] ?? 0n)).changes).toEqual(changes.slice(2))
  })

  it('says how many changes are kept no longer', async () => {
    const instances = await new FakeWing({ keptChanges: 3 }).open()
    await instances.ensure(ensureRequest('web'), ADMIN)
    for (const change of [Change.RUN, Change.PAUSE, Change.RUN])
      await instances.changeState({ key: 'web', change, graceMs: 0 }, ADMIN)
    const { lost, changes } = await seen(instances, 1n)
    expect(changes).toHaveLength(3)
    expect(lost + 1n + 3n).toBe((await instances.get('web', ADMIN)).sequence)
  })

  it('goes on after a restart with higher numbers, and tells the gap', async () => {
    const wing = new FakeWing()
    const before = await wing.open()
    const { sequence } = await before.ensure(ensureRequest('web'), ADMIN)
    await before.close()
    const instances = await wing.open()
    const { lost, changes } = await seen(instances, 0n)
    expect([lost, changes.map(({ kind }) => kind)]).toEqual([sequence, ['adopted']])
    expect(changes[0]?.sequence).toBe(sequence + 1n)
    expect(await seen(instances, sequence)).toEqual({ lost: 0n, changes })
  })

  it('waits for the next change', async () => {
    const instances = await new FakeWing().open()
    const watching = instances.watch({ after: 0n, once: false }, ADMIN)[Symbol.asyncIterator]()
    const first = watching.next()
    await instances.ensure(ensureRequest('web'), ADMIN)
    expect((await first).value.changes[0]).toMatchObject({
      key: 'web',
      kind: 'created',
      state: State.CREATING,
    })
    await watching.return?.()
  })
})
