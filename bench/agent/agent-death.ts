import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { buildAgent } from '../../src/build/agent.ts'
import { makeTemporaryFolder, removeTemporaryFolder } from '../../src/build/temporary-folder.ts'
import type { AgentPod } from '../../test/support/host/agent-pod.ts'
import { endChild } from '../../test/support/processes.ts'
import { benchPod } from '../support/bench-pod.ts'
import { median, report } from '../support/figure.ts'
import { startListening } from '../support/listening-agent.ts'
import { elapsedMs } from '../support/runtime-pair.ts'

/** The time from an agent's death until the next agent answers a call about a container, against a bare agent start. */
const ROUNDS = 15
const CONTAINERS = [1, 20]

const folder = makeTemporaryFolder(tmpdir())
const built = await buildAgent()
const pods: { readonly pod: AgentPod; readonly containers: number; readonly deaths: number[] }[] = []
try {
  for (const containers of CONTAINERS) {
    const pod = await benchPod()
    pods.push({ pod, containers, deaths: [] })
    for (let count = 0; count < containers; count++) await pod.run(`kept-${count}`, ['/bin/sleep', '1000000'])
  }
  const starts: number[] = []
  for (let round = 0; round < ROUNDS; round++) {
    starts.push(await startMs(round))
    for (const { pod, deaths } of pods) deaths.push(await deathMs(pod))
  }
  for (const { containers, deaths } of pods) {
    const figure = `death of an agent with ${containers} container${containers > 1 ? 's' : ''} to first answer`
    report({ figure, unit: 'ms', value: median(deaths), floor: median(starts), limit: 2 })
  }
} finally {
  for (const { pod } of pods) await pod.stop()
  removeTemporaryFolder(folder)
}

function deathMs({ agent, started }: AgentPod): Promise<number> {
  const pid = started.agentPid()
  return elapsedMs(() => {
    process.kill(pid, 'SIGKILL')
    return agent.statsContainer({ containerId: 'kept-0' })
  })
}

async function startMs(round: number): Promise<number> {
  const { vminit, ms } = await startListening(built, join(folder, `${round}.sock`))
  await endChild(vminit)
  return ms
}
