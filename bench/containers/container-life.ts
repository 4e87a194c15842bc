import { median, report } from '../support/figure.ts'
import { elapsedMs, type RuntimePair, withRuntime } from '../support/runtime-pair.ts'

/** CreateContainer, StartContainer, WaitProcess and RemoveContainer of `true`, against the same with the bare runtime. */
const ROUNDS = 25
const WARM_UP_ROUNDS = 5

for (const kind of ['runc', 'crun'] as const) {
  const { agent, bare } = await withRuntime(kind, measure)
  const figure = { value: median(agent), floor: median(bare), limit: 1.3 }
  report({ figure: `life of a container, ${kind}`, unit: 'ms', ...figure })
}

async function measure({ pod, bare }: RuntimePair) {
  const times = { agent: [] as number[], bare: [] as number[] }
  const life = async () => {
    const init = await pod.run('life', ['/bin/true'])
    const status = await init.wait()
    if (status !== 0) throw new Error(`true ended with ${status}`)
    await pod.remove('life')
  }
  for (let round = 0; round < WARM_UP_ROUNDS + ROUNDS; round++) {
    const floor = await bare.life('bare', ['/bin/true'])
    const value = await elapsedMs(life)
    if (round < WARM_UP_ROUNDS) continue
    times.bare.push(floor)
    times.agent.push(value)
  }
  return times
}
