import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { State } from '../../../../src/gen/microvm/instance/v1/instance.ts'
import { leftovers } from '../../../support/wing/leftovers.ts'
import { MovingHosts } from '../../../support/wing/moving-hosts.ts'
import { ADMIN } from '../../../support/wing/requests.ts'

const TIMEOUT_MS = 120_000

describe('a machine that moves between two hosts', { timeout: TIMEOUT_MS }, () => {
  let hosts: MovingHosts

  beforeEach(() => {
    hosts = new MovingHosts(['a', 'b'])
  })

  afterEach(async () => {
    await hosts.end()
    for (const id of ['a', 'b']) expect(leftovers(hosts.host(id).machines.folder)).toEqual([])
  })

  it('goes on with its memory and its console where it stopped, there and back', async () => {
    const made = await hosts.make('a')
    const answers = await hosts.move('a', 'b')
    expect(answers.map(({ step }) => step)).toEqual([
      ...['target', 'negotiate', 'handover', 'disks', 'memory', 'state', 'continue', 'switchover', ''],
    ])
    const { endpoint } = hosts.controller.hosts.get('b') ?? {}
    expect(answers.at(-1)?.moved).toMatchObject({ host: 'b', endpoint, operation: { kind: 'arrival' } })
    const [a, b] = [await hosts.open('a'), await hosts.open('b')]
    expect(a.instances.list(ADMIN)).toEqual([])
    const there = await b.instances.get('web', ADMIN)
    expect(there).toMatchObject({
      state: State.RUNNING,
      bootId: made.bootId,
      specification: made.specification,
    })
    await hosts.host('b').machines.counted('web', 50)
    const first = await hosts.host('b').machines.told()
    expect(first.first).toBe(0n)
    expect(first.end).toBeGreaterThan(50n)

    await hosts.move('b', 'a')
    await hosts.host('a').machines.counted('web', 50)
    const back = await hosts.host('a').machines.told()
    expect(back.end).toBeGreaterThan(first.end)
    expect(hosts.controller.chain.map((each) => each.split('/')[0])).toEqual(['a', 'b', 'a'])
  })
})
