import { podOf } from '../../test/support/containers/pod.ts'
import { startAgent } from '../../test/support/host/agent-process.ts'
import { giveAgentPriority } from '../support/bench-pod.ts'
import { median, report } from '../support/figure.ts'
import { elapsedMs, type RuntimePair, withRuntime } from '../support/runtime-pair.ts'

/** The first calls of an agent, until `true` has ended in its first container, against a container of the bare runtime. */
const ROUNDS = 11
const PHASES = ['sandbox', 'create', 'start', 'wait'] as const
const ARGS = ['/bin/true']

for (const kind of ['runc', 'crun'] as const) {
  const { floors, rounds } = await withRuntime(kind, (pair) => measure(kind, pair))
  const phases = Object.fromEntries(
    PHASES.map((name, index) => [name, median(rounds.map((times) => times[index] ?? 0))]),
  )
  const value = median(rounds.map((times) => times.reduce((sum, ms) => sum + ms, 0)))
  report({
    figure: `first container of an agent, ${kind}`,
    unit: 'ms',
    value,
    floor: median(floors),
    limit: 4,
    phases,
  })
}

async function measure(runtime: string, { pod, bare }: RuntimePair) {
  const floors: number[] = []
  const rounds: (readonly number[])[] = []
  for (let round = 0; round < ROUNDS; round++) {
    floors.push(await bare.run('bare', ARGS))
    await bare.delete('bare')
    rounds.push(await firstCalls(runtime, pod.root))
  }
  return { floors, rounds }
}

async function firstCalls(runtime: string, root: string): Promise<readonly number[]> {
  const started = await startAgent({ runtime })
  try {
    giveAgentPriority(started.agentPid())
    const { agent } = started
    return [
      await elapsedMs(() => agent.createSandbox({ sandboxId: 'pod', hostname: 'podname' })),
      await elapsedMs(() => podOf(agent, root).create('first', ARGS)),
      await elapsedMs(() => agent.startContainer({ containerId: 'first' })),
      await elapsedMs(() => agent.waitProcess({ containerId: 'first', execId: '' })),
    ]
  } finally {
    await started.stop()
  }
}
