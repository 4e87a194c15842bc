import type { AgentPod } from '../../test/support/host/agent-pod.ts'
import { benchPod } from '../support/bench-pod.ts'
import { median, report } from '../support/figure.ts'
import { elapsedMs, execTrue } from '../support/runtime-pair.ts'

/** ExecProcess `true` and WaitProcess in one of 100 idle containers, against an agent with one container. */
const CONTAINERS = 100
const AT_ONCE = 4
const ROUNDS = 61
const WARM_UP_ROUNDS = 10
const IDLE = ['/bin/sleep', '1000000']

const alone = await benchPod()
const crowd = await benchPod()
try {
  await alone.run('alone', IDLE)
  for (let from = 0; from < CONTAINERS; from += AT_ONCE) {
    const ids = Array.from({ length: AT_ONCE }, (_, number) => `crowd-${from + number}`)
    await Promise.all(ids.map((id) => crowd.run(id, IDLE)))
  }
  await measure(alone, crowd)
} finally {
  await Promise.all([alone.stop(), crowd.stop()])
}

async function measure(alone: AgentPod, crowd: AgentPod): Promise<void> {
  const [floors, values]: [number[], number[]] = [[], []]
  for (let round = 0; round < WARM_UP_ROUNDS + ROUNDS; round++) {
    const floor = await elapsedMs(() => execTrue(alone.agent, 'alone', `true-${round}`))
    const value = await elapsedMs(() => execTrue(crowd.agent, 'crowd-50', `true-${round}`))
    if (round < WARM_UP_ROUNDS) continue
    floors.push(floor)
    values.push(value)
  }
  const figure = { value: median(values), floor: median(floors), limit: 1.3 }
  report({ figure: 'exec true, one of 100 containers', unit: 'ms', ...figure })
}
