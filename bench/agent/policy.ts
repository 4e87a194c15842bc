import { REQUESTS } from '../../src/gen/message-fields.ts'
import { RemoteProcess } from '../../test/support/containers/pod.ts'
import type { AgentPod } from '../../test/support/host/agent-pod.ts'
import { benchPod } from '../support/bench-pod.ts'
import { median, report } from '../support/figure.ts'
import { elapsedMs, execTrue } from '../support/runtime-pair.ts'

/** Calls to an agent with a policy that allows all, alternating with calls to an agent without one. */
interface Side {
  readonly pod: AgentPod
  readonly idle: string
}

const RULES = new Set(Object.values(REQUESTS).map((name) => name.slice(name.lastIndexOf('.') + 1)))
const policyOf = (rule: (name: string) => string) =>
  ['package agent_policy', ...[...RULES].map(rule)].join('\n')

const POLICIES = {
  /** The policy of Kata's own images. */
  'allow-all policy': policyOf((name) => `default ${name} := true`),
  'policy that looks': policyOf((name) => `default ${name} := false\n${name} if { not input.no_such_field }`),
}

let number = 0

interface Figure {
  readonly figure: string
  readonly rounds: number
  readonly limit: number
  readonly action: (side: Side) => Promise<unknown>
}

/** `evaluated` is the limit under a policy whose rules read the request, where it differs. */
const FIGURES: readonly (Figure & { readonly evaluated?: number })[] = [
  // The container does not exist and the calls are not logged, so only the check costs time. The calls differ: a policy
  // that reads the request evaluates each one, with two thread switches, about 0.25 ms.
  { figure: 'call of nothing', rounds: 3000, limit: 1.5, evaluated: 2.5, action: nothing(8) },
  { figure: 'call of nothing with 4 KiB', rounds: 3000, limit: 1.5, evaluated: 2.5, action: nothing(4096) },
  { figure: 'StatsContainer', rounds: 500, limit: 1.5, action: stats },
  { figure: 'WriteStdin of 4 KiB', rounds: 2000, limit: 1.1, action: write(4096) },
  { figure: 'WriteStdin of 32 KiB', rounds: 2000, limit: 1.1, action: write(32_768) },
  { figure: 'WriteStdin of 1 MiB', rounds: 200, limit: 1.1, action: write(1024 * 1024) },
  { figure: 'exec true', rounds: 101, limit: 1.05, action: exec },
  { figure: 'life of a container', rounds: 101, limit: 1.05, action: life },
]

const free = { pod: await benchPod(), idle: 'idle-free' }
const checked = { pod: await benchPod({ withPolicyEngine: true }), idle: 'idle-checked' }
try {
  for (const { pod, idle } of [free, checked]) {
    await pod.run(idle, ['/bin/sleep', '1000000'])
    await pod.add(idle, 'sink', ['sh', '-c', 'cat > /dev/null'])
  }
  for (const [name, policy] of Object.entries(POLICIES)) {
    await checked.pod.agent.setPolicy({ policy })
    for (const figure of FIGURES) {
      const { limit, evaluated = limit, ...rest } = figure
      await measure(name, { ...rest, limit: name === 'allow-all policy' ? limit : evaluated })
    }
  }
} finally {
  await Promise.all([free.pod.stop(), checked.pod.stop()])
}

async function measure(policy: string, { figure, rounds, limit, action }: Figure): Promise<void> {
  const [floors, values]: [number[], number[]] = [[], []]
  for (let round = -rounds / 10; round < rounds; round++) {
    const floor = await elapsedMs(() => action(free))
    const value = await elapsedMs(() => action(checked))
    if (round < 0) continue
    floors.push(floor * 1000)
    values.push(value * 1000)
  }
  report({
    figure: `${figure}, ${policy}`,
    unit: 'us',
    value: median(values),
    floor: median(floors),
    limit,
  })
}

function nothing(size: number): (side: Side) => Promise<unknown> {
  return ({ pod }) =>
    pod.agent.readStdout({ containerId: String(number++).padStart(size, 'x') }).catch(() => {})
}

function stats({ pod, idle }: Side): Promise<unknown> {
  return pod.agent.statsContainer({ containerId: idle })
}

function write(size: number): (side: Side) => Promise<void> {
  const data = Buffer.alloc(size, 'x')
  return ({ pod, idle }) => new RemoteProcess(pod.agent, idle, 'sink').write(data)
}

function exec({ pod, idle }: Side): Promise<void> {
  return execTrue(pod.agent, idle, `true-${number++}`)
}

async function life({ pod }: Side): Promise<void> {
  const id = `life-${number++}`
  const init = await pod.run(id, ['/bin/true'])
  await init.wait()
  await pod.remove(id)
}
