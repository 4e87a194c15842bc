import { benchPod } from '../support/bench-pod.ts'
import { median } from '../support/figure.ts'
import { elapsedMs } from '../support/runtime-pair.ts'

const COUNTS = [1, 2, 5, 10, 20, 50, 100, 200]
const ROUNDS = 5

/** How long callers wait when an agent with so many containers dies. */
export async function deaths() {
  const pod = await benchPod({ runtime: 'crun' })
  const rows: number[][] = []
  try {
    let present = 0
    for (const count of COUNTS) {
      for (; present < count; present += 1) await pod.run(`idle-${present}`, ['/bin/sleep', '1000000'])
      const waits: number[] = []
      for (let round = 0; round < ROUNDS; round += 1) {
        const pid = pod.started.agentPid()
        waits.push(
          await elapsedMs(() => {
            process.kill(pid, 'SIGKILL')
            return pod.agent.statsContainer({ containerId: 'idle-0' })
          }),
        )
      }
      rows.push([count, median(waits)])
    }
  } finally {
    await pod.stop()
  }
  return {
    title: 'The death of an agent',
    text: 'The time from its death until the next agent answers a call about a container.',
    columns: ['containers', 'until the answer, ms'],
    rows,
  }
}
