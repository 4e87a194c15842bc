import { describe, expect, it } from 'vitest'
import { INSTANCES } from '../../../../../scripts/test/instances-run.ts'
import { State } from '../../../../../src/gen/microvm/instance/v1/instance.ts'
import { leftovers } from '../../../../support/wing/leftovers.ts'
import { MovingHosts } from '../../../../support/wing/moves/moving-hosts.ts'
import { ADMIN } from '../../../../support/wing/requests.ts'

const TIMEOUT_MS = 300_000

/** `npm run instances` kills at all steps, and this group at a few. */
const ALL = process.env[INSTANCES.lives] !== undefined

type Where = 'here' | 'there' | 'either'

/** Where the machine runs after a kill of the daemon before this step. */
const SOURCE: readonly (readonly [step: string, runs: Where])[] = [
  ...(['target', 'negotiate', 'handover', 'disks', 'memory', 'state', 'handed', 'continue'] as const).map(
    (step) => [step, 'here'] as const,
  ),
  ['switchover', 'either'],
  ['end', 'there'],
]

const TARGET: readonly (readonly [step: string, runs: Where])[] = [
  ...(['start', 'listen', 'memory', 'state', 'switchover'] as const).map((step) => [step, 'here'] as const),
  ...(['lease', 'streams', 'cont', 'commit', 'repair'] as const).map((step) => [step, 'there'] as const),
]

const FEW: readonly string[] = ['start', 'memory', 'continue', 'end', 'switchover', 'lease', 'cont', 'repair']

describe('a machine runs on exactly one host', { timeout: TIMEOUT_MS }, () => {
  it.each([
    ['source', SOURCE],
    ['target', TARGET],
  ] as const)('after a death of the daemon of its %s at any step of a move', async (killed, steps) => {
    const hosts = new MovingHosts(['a', 'b'])
    await hosts.make('a')
    let [here, there] = ['a', 'b']
    for (const [step, expected] of ALL ? steps : steps.filter(([name]) => FEW.includes(name))) {
      const dead = killed === 'source' ? here : there
      await hosts.open(there)
      const reached = Promise.withResolvers<void>()
      hosts.host(dead).atStep = async (operation, at) => {
        if (at !== step || operation !== (killed === 'source' ? 'move' : 'arrival')) return
        hosts.host(dead).atStep = async () => {}
        reached.resolve()
        await new Promise(() => {})
      }
      const moved = hosts.move(here, there).then(
        () => {},
        (error) => error,
      )
      expect(await Promise.race([reached.promise.then(() => step), moved])).toBe(step)
      await hosts.leave(dead)
      if (killed === 'target') await moved
      await hosts.open(dead)
      const runsAt = async () => {
        const all = [here, there].map(async (id) => {
          const { instances } = await hosts.open(id)
          const list = instances.list(ADMIN).filter(({ state }) => state !== State.AWAITING)
          return list.map(({ state }) => `${id}: ${state === State.RUNNING ? 'runs' : `state ${state}`}`)
        })
        return (await Promise.all(all)).flat()
      }
      const places = { here: [`${here}: runs`], there: [`${there}: runs`] }
      const wanted = expected === 'either' ? Object.values(places) : [places[expected]]
      await expect
        .poll(runsAt, { timeout: 40_000, message: `${killed} ${step}` })
        .toSatisfy((found) => wanted.some((each) => each.join() === found.join()))
      if (killed === 'source' && step === 'end')
        await expect((await hosts.open(here)).instances.get('web', ADMIN)).rejects.toThrow(
          `runs on host ${there} at 127.0.0.1:`,
        )
      const [place = ''] = await runsAt()
      if (place.startsWith(there)) [here, there] = [there, here]
      await hosts.host(here).machines.counted('web', 10)
      await hosts.host(here).machines.told()
      expect(hosts.host(there).machines.pidsOf('qemu'), step).toEqual([])
      for (const { properties } of (await hosts.open(there)).instances.list(ADMIN))
        await (await hosts.open(there)).instances.remove(properties?.key ?? '', ADMIN)
    }
    // Nothing of a death is in the way of the next one.
    await hosts.move(here, there)
    await hosts.end()
    for (const id of ['a', 'b']) expect(leftovers(hosts.host(id).machines.folder)).toEqual([])
  })

  it('after a death of its QEMU at the target, before that asks to run it', async () => {
    const hosts = new MovingHosts(['a', 'b'])
    await hosts.make('a')
    await hosts.open('b')
    const { machines } = hosts.host('b')
    hosts.host('b').atStep = async (_, step) => {
      if (step !== 'switchover') return
      for (const pid of machines.pidsOf('qemu')) process.kill(pid, 'SIGKILL')
      await expect.poll(() => machines.pidsOf('qemu')).toEqual([])
    }
    await expect(hosts.move('a', 'b')).rejects.toThrow('the machine was not moved')
    const { instances } = await hosts.open('a')
    expect((await instances.get('web', ADMIN)).state).toBe(State.RUNNING)
    await hosts.host('a').machines.counted('web', 10)
    await hosts.host('a').machines.told()
    await hosts.end()
  })
})
