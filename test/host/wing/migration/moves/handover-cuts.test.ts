import { describe, expect, it } from 'vitest'
import { INSTANCES } from '../../../../../scripts/test/instances-run.ts'
import { State } from '../../../../../src/gen/microvm/instance/v1/instance.ts'
import { endpointText } from '../../../../../src/host/tls/endpoint.ts'
import { randomFrom } from '../../../../support/kills/random.ts'
import { listeningPorts } from '../../../../support/processes.ts'
import { leftovers } from '../../../../support/wing/leftovers.ts'
import { type Cut, CuttingLink } from '../../../../support/wing/moves/faults/cutting-link.ts'
import { MovingHosts } from '../../../../support/wing/moves/moving-hosts.ts'
import { ADMIN } from '../../../../support/wing/requests.ts'

const { [INSTANCES.lives]: lives, [INSTANCES.seed]: given } = process.env
const seed = Number(given ?? Math.floor(Math.random() * 0x7fffffff))
const random = randomFrom(seed)

/** Before its QEMU is started, the target costs little. */
const [EARLY, LATE] = [6, 5]
/** Of what follows, which is the console for the most part, also where all bytes are cut before. */
const LATE_OF_ALL = 200

/** `npm run instances` cuts at each byte until the target is ready, and at many later ones; this group at some. */
function cutsOf(carried: {
  readonly there: number
  readonly back: number
  readonly ready: number
}): readonly Cut[] {
  const { back, ready, there } = carried
  const among = (from: number, to: number, most: number): readonly number[] =>
    Array.from({ length: most }, () => from + Math.floor(random() * (to - from)))
  const all = (to: number) => Array.from({ length: to }, (_, after) => after)
  const isWhole = lives !== undefined
  return [
    ...(isWhole ? all(ready) : [0, ...among(1, ready, EARLY - 1)]).map(
      (after) => ({ direction: 'there', after }) as const,
    ),
    ...among(ready, there, isWhole ? LATE_OF_ALL : LATE - 2).map(
      (after) => ({ direction: 'there', after }) as const,
    ),
    ...(isWhole ? all(back) : among(0, back, 2)).map((after) => ({ direction: 'back', after }) as const),
  ]
}

const LIMIT = { timeout: lives === undefined ? 240_000 : 6 * 3_600_000 }

describe(`the connection of a move that is cut at a byte (seed ${seed})`, LIMIT, () => {
  it('leaves the machine on one host, and nothing on the other', async () => {
    const hosts = new MovingHosts(['a', 'b'])
    await hosts.make('a')
    const links = new Map<string, CuttingLink>()
    for (const [caller, called] of [
      ['a', 'b'],
      ['b', 'a'],
    ] as const) {
      await hosts.open(called)
      const { authority } = hosts
      const link = await CuttingLink.to(hosts.host(called).settings.listen, { authority, caller, called })
      const host = hosts.controller.hosts.get(called)
      if (host === undefined) throw new Error(`no host ${called}`)
      hosts.controller.hosts.set(called, { ...host, endpoint: endpointText(link.endpoint) })
      links.set(called, link)
    }
    const linkTo = (id: string) => {
      const link = links.get(id)
      if (link === undefined) throw new Error(`no link to ${id}`)
      return link
    }
    const statesAt = async (id: string) =>
      (await hosts.open(id)).instances.list(ADMIN).map(({ state }) => state)
    let [here, there] = ['a', 'b']
    /** What a whole move carries, and how much of it before the target is ready. */
    let ready = 0
    hosts.host('b').atStep = async (_, step) => {
      if (step === 'listen') ready = linkTo('b').carried.there
    }
    linkTo('b').cutNext()
    await hosts.move('a', 'b')
    const whole = { ...linkTo('b').carried, ready }
    hosts.host('b').atStep = async () => {}
    await hosts.move('b', 'a')
    expect(whole.ready).toBeGreaterThan(0)
    expect(whole.there).toBeGreaterThan(whole.ready)
    const ports = listeningPorts()
    let stayed = 0
    for (const cut of cutsOf(whole)) {
      const at = `cut ${cut.direction} after ${cut.after} of ${JSON.stringify(whole)}`
      linkTo(there).cutNext(cut)
      const moved = await hosts.move(here, there).then(
        () => true,
        () => false,
      )
      await expect
        .poll(async () => [await statesAt(here), await statesAt(there)].map((all) => all.join()), {
          ...{ timeout: 60_000, message: at },
        })
        .toSatisfy((states) => [`${State.RUNNING},`, `,${State.RUNNING}`].includes(states.join()))
      const isThere = (await statesAt(there)).length === 1
      // Nobody is told of a move that has not happened.
      if (moved) expect(isThere, at).toBe(true)
      if (isThere) [here, there] = [there, here]
      else stayed += 1
      await hosts.host(here).machines.counted('web', 10)
      await hosts.host(here).machines.told()
      expect(hosts.host(there).machines.pidsOf('qemu'), at).toEqual([])
      await expect.poll(() => [...links.values()].map(({ open }) => open), { message: at }).toEqual([0, 0])
      await expect.poll(listeningPorts, { message: at }).toEqual(ports)
    }
    expect(stayed).toBeGreaterThan(EARLY / 2)
    for (const link of links.values()) link.close()
    await hosts.end()
    for (const id of ['a', 'b']) expect(leftovers(hosts.host(id).machines.folder)).toEqual([])
  })
})
