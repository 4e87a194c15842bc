import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { messageOf } from '../../src/base/errors.ts'
import { type AgentPod, leftoversOf, NOTHING_LEFT, startPod } from '../support/host/agent-pod.ts'
import { Killer } from '../support/kills/killer.ts'
import { keepsOnly, keptOf, live, makeWatched } from '../support/kills/lives.ts'
import { AS_LONG_AS_ASKED_MS, oneRun, randomOf, shareOf, Tally, warningsIn } from '../support/kills/share.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'

const BESIDE = 6
/** The longest time between two kills. A kill costs as much CPU time as two lives. */
const MOST_APART_MS = 2000
/** Leftovers are checked after this many lives. */
const BATCH = 200

const share = shareOf('lives')
const RUNTIMES = [
  ['runc', Math.ceil(share / 2)],
  ['crun', Math.floor(share / 2)],
] as const

describe.skipIf(share === 0).each(RUNTIMES)('lives of containers of %s', (runtime, lives) => {
  let pod: AgentPod
  let watched: string
  beforeAll(async () => {
    watched = makeWatched(temporaryFolder())
    pod = await startPod({ runtime })
  })
  afterAll(() => pod?.stop())

  const random = randomOf(`lives of ${runtime}`)
  const killAgain = () => new Killer(pod.started, random, MOST_APART_MS)

  it('leave nothing, whenever the agent is killed', { timeout: AS_LONG_AS_ASKED_MS }, async () => {
    const tally = new Tally(`lives of containers of ${runtime}`)
    // The first lives create what stays.
    const first = killAgain()
    const begin = (name: string, number: number) =>
      oneRun(`life ${name}`, pod.started, live(pod, watched, name, number))
    await Promise.all([0, 1].map((number) => begin(`w${number}`, number))).finally(() => first.stop())
    tally.add(first.kills)
    const before = await keptOf(pod.started)
    for (let begun = 0; begun < lives; begun += BATCH) {
      const killer = killAgain()
      const logged = pod.started.log.length
      const numbers = Array.from({ length: Math.min(BATCH, lives - begun) }, (_, index) => begun + index)
      const waiting = [...numbers]
      let told = 0
      const lane = async () => {
        for (let number = waiting.shift(); number !== undefined; number = waiting.shift()) {
          await begin(`l${number}`, number)
          killer.progressed()
          tally.add(killer.kills - told)
          told = killer.kills
        }
      }
      const failed = (error: unknown) => {
        throw new Error(`after ${tally.runs} lives and ${killer.kills} kills: ${error}`, { cause: error })
      }
      const living = Promise.all(Array.from({ length: BESIDE }, lane)).catch(failed)
      await living.finally(() => killer.stop())
      const ids = numbers.map((number) => `l${number}`)
      await expect.poll(() => leftoversOf(pod.started, ...ids)).toEqual(NOTHING_LEFT)
      await keepsOnly(pod.started, before).catch((error: unknown) => {
        throw new Error(`${messageOf(error)}\n${warningsIn(pod.started.log.slice(logged))}`, { cause: error })
      })
    }
    tally.end()
  })
})
