import { readdirSync, readFileSync } from 'node:fs'
import { type AgentPod, leftoversOf } from '../../test/support/host/agent-pod.ts'
import { benchPod } from '../support/bench-pod.ts'
import { type Figure, report } from '../support/figure.ts'
import { execTrue } from '../support/runtime-pair.ts'

/**
 * The agent's memory, descriptors and children after 10,000 executions of `true`, against those after 500. Takes
 * minutes; the argument of `node bench/containers/exec-leak.ts COUNT` replaces 10,000.
 */
const BEFORE = 500
const DEFAULT_COUNT = 10_000

const count = Number(process.argv[2] ?? DEFAULT_COUNT)
if (!Number.isSafeInteger(count) || count <= BEFORE) throw new Error(`count: a number above ${BEFORE}`)

const pod = await benchPod()
try {
  await pod.run('leak', ['/bin/sleep', '1000000'])
  await execTimes(pod, 0, BEFORE)
  const before = holdings(pod)
  await execTimes(pod, BEFORE, count)
  const after = holdings(pod)
  const name = (what: string) => `${what} after ${count} execs`
  const figure = (what: Figure['unit'] & keyof Holdings, limit: number) => ({
    unit: what,
    value: after[what],
    floor: before[what],
    limit,
  })
  report({ figure: name('memory (RSS)'), ...figure('MiB', 1.1) })
  report({ figure: name('open descriptors'), ...figure('descriptors', 1) })
  report({ figure: name('children and zombies'), ...figure('processes', 1) })
} finally {
  await pod.stop()
}

interface Holdings {
  readonly MiB: number
  readonly descriptors: number
  /** Children of vminit and of the agent, including zombies. */
  readonly processes: number
}

function holdings({ started }: AgentPod): Holdings {
  const agent = started.agentPid()
  return {
    MiB: residentMib(agent),
    descriptors: readdirSync(`/proc/${agent}/fd`).length,
    processes: leftoversOf(started).processes.length,
  }
}

function residentMib(pid: number): number {
  const status = readFileSync(`/proc/${pid}/status`, 'utf8')
  return Number(/VmRSS:\s+(\d+)/.exec(status)?.[1]) / 1024
}

async function execTimes(pod: AgentPod, from: number, to: number): Promise<void> {
  for (let number = from; number < to; number++) {
    await execTrue(pod.agent, 'leak', `true-${number}`)
    if ((number + 1) % 500 === 0) {
      process.stderr.write(`exec-leak: ${number + 1} of ${count}, ${JSON.stringify(holdings(pod))}\n`)
    }
  }
}
