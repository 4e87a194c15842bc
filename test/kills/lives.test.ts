import { readdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { ContainerOptions } from '../support/containers/container-requests.ts'
import {
  type AgentPod,
  leftoversOf,
  mountPointsOf,
  NOTHING_LEFT,
  startPod,
} from '../support/host/agent-pod.ts'
import { Killer } from '../support/kills/killer.ts'
import { AS_LONG_AS_ASKED_MS, oneRun, randomOf, shareOf, Tally, warningsIn } from '../support/kills/share.ts'
import { processes } from '../support/processes.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'

/** So many lives go on beside each other. */
const BESIDE = 6
/** Kills are at most so far apart. One costs as much CPU time as two lives. */
const MOST_APART_MS = 2000
/** After so many lives nothing may be left. */
const BATCH = 200

/** The folder of runs, made with the first one after a start, and a write of state that ended with its agent. */
const BY_CHANCE = ['calls', 'saved/unfinished.new']

const share = shareOf('lives')
/** The OCI runtimes, and how many lives each makes. */
const RUNTIMES = [
  ['runc', Math.ceil(share / 2)],
  ['crun', Math.floor(share / 2)],
] as const

/** The numbers of open descriptors, all mount points, and all files of the agent's own. */
interface Kept {
  readonly vminit: number
  readonly broker: number
  readonly agent: number
  readonly mounts: readonly string[]
  readonly files: readonly string[]
}

describe.skipIf(share === 0).each(RUNTIMES)('lives of containers of %s', (runtime, lives) => {
  let pod: AgentPod
  /** The source of storages. */
  let watched: string
  beforeAll(async () => {
    watched = temporaryFolder()
    writeFileSync(join(watched, 'file'), 'content')
    pod = await startPod({ runtime })
  })
  afterAll(() => pod?.stop())

  const random = randomOf(`lives of ${runtime}`)
  const killAgain = () => new Killer(pod.started, random, MOST_APART_MS)

  /** One life, of a kind that its number tells. */
  async function live(id: string, number: number): Promise<void> {
    const terminal = number % 3 === 0
    const mountPoint = `/run/kata-containers/shared/containers/watchable/${id}`
    const withStorage: ContainerOptions = {
      storages: [
        {
          ...{ driver: 'watchable-bind', source: watched, fstype: 'bind', mountPoint },
          options: ['rbind', 'rprivate', 'ro'],
        },
      ],
      mounts: [{ source: mountPoint, destination: '/volume', type: 'bind', options: ['rbind', 'ro'] }],
    }
    const options = { terminal, ...(number % 2 === 0 && withStorage) }
    const init = await pod.run(id, ['sh', '-c', 'echo begun; read line; echo "got $line"; exit 3'], options)
    const added = await pod.add(id, 'e', ['sh', '-c', 'cat; exit 4'])
    await added.write('typed')
    await added.closeStdin()
    expect((await added.readAll()).toString()).toBe('typed')
    expect(await added.wait()).toBe(4)
    if (number % 5 === 0) {
      await pod.agent.pauseContainer({ containerId: id })
      await pod.agent.resumeContainer({ containerId: id })
    }
    if (number % 4 === 0) {
      // It is removed while it runs.
      await pod.remove(id)
      return
    }
    await init.write('end\n')
    expect(await init.readUntil('got end')).toContain('begun')
    expect(await init.wait()).toBe(3)
    await pod.remove(id)
  }

  /** What is open while nothing is under way, once two looks see the same. */
  async function kept(): Promise<Kept> {
    let last: Kept | undefined
    await expect
      .poll(
        async () => {
          await pod.started.health.check({})
          const before = last
          last = look()
          return JSON.stringify(before) === JSON.stringify(last)
        },
        { interval: 100 },
      )
      .toBe(true)
    return last ?? look()
  }

  function look(): Kept {
    const { vminitPid } = pod.started
    const broker = processes().find(({ parent, name }) => parent === vminitPid && name === 'api-broker')
    const files = readdirSync(pod.started.inside('/run/microvm-agent'), {
      recursive: true,
      encoding: 'utf8',
    })
    return {
      vminit: openIn(vminitPid),
      broker: openIn(broker?.pid ?? 0),
      agent: openIn(pod.started.agentPid()),
      mounts: mountPointsOf(pod.started).toSorted(),
      files: files.filter((file) => !BY_CHANCE.includes(file)).sort(),
    }
  }

  it('leave nothing, whenever the agent is killed', { timeout: AS_LONG_AS_ASKED_MS }, async () => {
    const tally = new Tally(`lives of containers of ${runtime}`)
    // The first lives make what stays.
    const first = killAgain()
    const begin = (name: string, number: number) => oneRun(`life ${name}`, pod.started, live(name, number))
    await Promise.all([0, 1].map((number) => begin(`w${number}`, number))).finally(() => first.stop())
    tally.add(first.kills)
    const before = await kept()
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
      expect(await kept(), warningsIn(pod.started.log.slice(logged))).toEqual(before)
    }
    tally.end()
  })
})

function openIn(pid: number): number {
  return readdirSync(`/proc/${pid}/fd`).length
}
