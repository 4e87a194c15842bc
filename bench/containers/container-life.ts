import { SIGKILL } from '../../src/base/signals.ts'
import { median, report } from '../support/figure.ts'
import { elapsedMs, type RuntimePair, withRuntime } from '../support/runtime-pair.ts'

/** CreateContainer, StartContainer, WaitProcess and RemoveContainer of `true`, against the same with the bare runtime. */
const ROUNDS = 25
const WARM_UP_ROUNDS = 5

/** Kills, waits for and removes this many containers at once, against the bare runtime, one after the other. */
const CROWD = 50
const CROWD_ROUNDS = 3

const PHASES = ['create', 'start', 'wait', 'remove'] as const

for (const kind of ['runc', 'crun'] as const) {
  const { agent, bare, phases, crowd, bareCrowd } = await withRuntime(kind, async (pair) => ({
    ...(await measure(pair)),
    ...(await measureCrowd(pair)),
  }))
  const figure = { value: median(agent), floor: median(bare), limit: 1.3, phases }
  report({ figure: `life of a container, ${kind}`, unit: 'ms', ...figure })
  const removal = { value: median(crowd), floor: median(bareCrowd), limit: 0.5 }
  report({ figure: `kill, wait and remove of ${CROWD} at once, ${kind}`, unit: 'ms', ...removal })
}

async function measure({ pod, bare }: RuntimePair) {
  const times = { agent: [] as number[], bare: [] as number[] }
  const parts = PHASES.map((name) => ({ name, times: [] as number[] }))
  const init = { containerId: 'life', execId: '' }
  const steps = [
    () => pod.create('life', ['/bin/true']),
    () => pod.agent.startContainer({ containerId: 'life' }),
    async () => {
      const { status } = await pod.agent.waitProcess(init)
      if (status !== 0) throw new Error(`true ended with ${status}`)
    },
    () => pod.remove('life'),
  ]
  for (let round = 0; round < WARM_UP_ROUNDS + ROUNDS; round++) {
    const floor = (await bare.run('bare', ['/bin/true'])) + (await bare.delete('bare'))
    const each: number[] = []
    for (const step of steps) each.push(await elapsedMs(step))
    if (round < WARM_UP_ROUNDS) continue
    times.bare.push(floor)
    times.agent.push(each.reduce((sum, ms) => sum + ms, 0))
    for (const [index, part] of parts.entries()) part.times.push(each[index] ?? 0)
  }
  const phases = Object.fromEntries(parts.map((part) => [part.name, median(part.times)]))
  return { ...times, phases }
}

async function measureCrowd({ pod, bare }: RuntimePair) {
  const times = { crowd: [] as number[], bareCrowd: [] as number[] }
  const ids = Array.from({ length: CROWD }, (_, number) => `crowd-${number}`)
  const sleep = ['/bin/sleep', '1000000']
  for (let round = 0; round < CROWD_ROUNDS; round++) {
    let floor = 0
    for (const id of ids) await bare.start(`bare-${id}`, sleep)
    for (const id of ids) floor += await bare.remove(`bare-${id}`)
    times.bareCrowd.push(floor)
    for (const id of ids) await pod.run(id, sleep)
    const end = async (containerId: string) => {
      await pod.agent.signalProcess({ containerId, execId: '', signal: SIGKILL })
      await pod.agent.waitProcess({ containerId, execId: '' })
      await pod.remove(containerId)
    }
    times.crowd.push(await elapsedMs(() => Promise.all(ids.map(end))))
  }
  return times
}
