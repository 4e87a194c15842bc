import { describe, expect, it } from 'vitest'
import { State } from '../../../../../src/gen/microvm/instance/v1/instance.ts'
import { rebuildRegistry } from '../../../../../src/host/instance/registry/open-registry.ts'
import { leftovers } from '../../../../support/wing/leftovers.ts'
import { MovingHosts } from '../../../../support/wing/moves/moving-hosts.ts'
import { ADMIN } from '../../../../support/wing/requests.ts'

const TIMEOUT_MS = 120_000

describe('a machine that was handed over', { timeout: TIMEOUT_MS }, () => {
  it.each([
    ['continue', 'a'],
    ['end', 'b'],
  ])('runs once after a death at step %s and a rebuild of the registry', async (step, runs) => {
    const hosts = new MovingHosts(['a', 'b'])
    await hosts.make('a')
    await hosts.open('b')
    const reached = Promise.withResolvers<void>()
    hosts.host('a').atStep = async (operation, at) => {
      if (at !== step || operation !== 'move') return
      hosts.host('a').atStep = async () => {}
      reached.resolve()
      await new Promise(() => {})
    }
    const moved = hosts.move('a', 'b').catch((error) => error)
    expect(await Promise.race([reached.promise.then(() => step), moved])).toBe(step)
    await hosts.leave('a')
    await rebuildRegistry(hosts.host('a').machines.folder)
    const running = async () => {
      const all = ['a', 'b'].map(async (id) => {
        const list = (await hosts.open(id)).instances.list(ADMIN)
        return list.map(({ state }) => (state === State.RUNNING ? id : `${id}: state ${state}`))
      })
      return (await Promise.all(all)).flat()
    }
    await expect.poll(running, { timeout: 40_000 }).toEqual([runs])
    await hosts.host(runs).machines.counted('web', 10)
    await hosts.end()
    for (const id of ['a', 'b']) expect(leftovers(hosts.host(id).machines.folder)).toEqual([])
  })
})
