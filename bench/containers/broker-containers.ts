import type { AgentPod } from '../../test/support/host/agent-pod.ts'
import type { RuntimeKind } from '../support/bare-runtime.ts'
import { benchPod } from '../support/bench-pod.ts'
import { median, report } from '../support/figure.ts'
import { cpuMsOf } from '../support/process-figures.ts'
import { elapsedMs, execTrue } from '../support/runtime-pair.ts'

/**
 * ExecProcess → WaitProcess, and the life of a container, through vminit and the connection broker, against the same agent
 * that accepts connections itself: then no answer is recorded, and no range of output.
 */
const ROUNDS = 41
const WARM_UP_ROUNDS = 8

/** One agent and its times. */
interface Measured {
  readonly pod: AgentPod
  readonly exec: Sample[]
  readonly life: Sample[]
}

interface Sample {
  readonly ms: number
  /** The agent's CPU time. */
  readonly cpuMs: number
}

for (const runtime of ['runc', 'crun'] as const) await measure(runtime)

async function measure(runtime: RuntimeKind): Promise<void> {
  const pods: Measured[] = []
  try {
    for (const withoutBroker of [false, true]) {
      const pod = await benchPod({ runtime, withoutBroker })
      pods.push({ pod, exec: [], life: [] })
      await pod.run('model', ['/bin/sleep', '1000000'])
    }
    for (let round = 0; round < WARM_UP_ROUNDS + ROUNDS; round++) {
      // Neither is always the first.
      if (round % 2 === 1) pods.reverse()
      for (const { pod, exec } of pods) {
        const one = await sample(pod, () => execTrue(pod.agent, 'model', `true-${round}`))
        if (round >= WARM_UP_ROUNDS) exec.push(one)
      }
      for (const { pod, life } of pods) {
        const one = await sample(pod, () => lifeOf(pod))
        if (round >= WARM_UP_ROUNDS) life.push(one)
      }
      if (round % 2 === 1) pods.reverse()
    }
  } finally {
    for (const { pod } of pods) await pod.stop()
  }
  const [brokered, direct] = pods
  if (brokered === undefined || direct === undefined) throw new Error('two agents are compared')
  const figure = (name: string, of: (measured: Measured) => Sample[]) => {
    const at = (measured: Measured, key: keyof Sample) => median(of(measured).map((one) => one[key]))
    const phases = { agentCpu: at(brokered, 'cpuMs'), directCpu: at(direct, 'cpuMs') }
    report({
      figure: name,
      unit: 'ms',
      value: at(brokered, 'ms'),
      floor: at(direct, 'ms'),
      limit: 1.05,
      phases,
    })
  }
  figure(`exec true through the broker, ${runtime}`, ({ exec }) => exec)
  figure(`life of a container through the broker, ${runtime}`, ({ life }) => life)
}

async function sample({ started }: AgentPod, action: () => Promise<unknown>): Promise<Sample> {
  const before = cpuMsOf(started.agentPid())
  const ms = await elapsedMs(action)
  return { ms, cpuMs: cpuMsOf(started.agentPid()) - before }
}

async function lifeOf(pod: AgentPod): Promise<void> {
  const init = await pod.run('life', ['/bin/true'])
  const status = await init.wait()
  if (status !== 0) throw new Error(`true ended with ${status}`)
  await pod.remove('life')
}
