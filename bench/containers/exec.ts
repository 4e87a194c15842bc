import { median, report } from '../support/figure.ts'
import { elapsedMs, execTrue, type RuntimePair, withRuntime } from '../support/runtime-pair.ts'

/** ExecProcess `true` and WaitProcess, against the bare runtime's `exec` of the same. */
const ROUNDS = 61
const WARM_UP_ROUNDS = 10

const LIMITS = { runc: 1.3, crun: 1.5 }

for (const kind of ['runc', 'crun'] as const) {
  const { agent, bare } = await withRuntime(kind, measure)
  const figure = { value: median(agent), floor: median(bare), limit: LIMITS[kind] }
  report({ figure: `exec true, ${kind}`, unit: 'ms', ...figure })
}

async function measure({ pod, bare }: RuntimePair) {
  await bare.start('bare', ['/bin/sleep', '1000000'])
  const times = { agent: [] as number[], bare: [] as number[] }
  for (let round = 0; round < WARM_UP_ROUNDS + ROUNDS; round++) {
    const floor = await bare.execTrue('bare')
    const value = await elapsedMs(() => execTrue(pod.agent, 'model', `true-${round}`))
    if (round < WARM_UP_ROUNDS) continue
    times.bare.push(floor)
    times.agent.push(value)
  }
  await bare.remove('bare')
  return times
}
