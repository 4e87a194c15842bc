import { setTimeout as sleep } from 'node:timers/promises'
import { benchPod } from '../support/bench-pod.ts'
import { median } from '../support/figure.ts'
import { startOrphansOf, startOwnOrphans } from '../support/orphans.ts'
import { cpuMsOf } from '../support/process-figures.ts'
import { elapsedMs, execTrue } from '../support/runtime-pair.ts'

const COUNTS = [1, 10, 100, 1000, 10_000]
const ROUNDS = 9
/** Time for the agent's work on what has ended. */
const AFTER_MS = 20

/** What the exits of so many orphans cost, which vminit reaps and the agent is told of. */
export async function exits() {
  const pod = await benchPod({ runtime: 'crun' })
  const [orphans, own] = [await startOrphansOf(pod), await startOwnOrphans()]
  const rows: number[][] = []
  try {
    await pod.run('model', ['/bin/sleep', '1000000'])
    const pids = [pod.started.vminitPid, pod.started.agentPid()]
    for (const count of COUNTS) {
      const [reaped, bare, executed]: [number[], number[], number[]] = [[], [], []]
      const cpu: [number[], number[]] = [[], []]
      for (let round = 0; round < ROUNDS; round += 1) {
        bare.push(await own.end(count))
        await sleep(AFTER_MS)
        const before = pids.map(cpuMsOf)
        reaped.push(await orphans.end(count))
        await sleep(AFTER_MS)
        for (const [index, ms] of pids.map(cpuMsOf).entries()) cpu[index]?.push(ms - (before[index] ?? 0))
        // After a pause the kernel moves the first process into a cgroup some 10 ms later.
        await execTrue(pod.agent, 'model', `first-${count}-${round}`)
        const flood = orphans.end(count)
        executed.push(await elapsedMs(() => execTrue(pod.agent, 'model', `true-${count}-${round}`)))
        await flood
      }
      rows.push([count, ...[reaped, bare, executed, ...cpu].map(median)])
    }
  } finally {
    orphans.close()
    own.close()
    await pod.stop()
  }
  return {
    title: 'Exits of orphans',
    text: 'The time until all are reaped, and the time of a process that is added beside them.',
    columns: [
      ...['exits', 'reaped by `vminit`, ms', 'by a bare program, ms', 'exec `true` beside them, ms'],
      ...['`vminit`, ms of CPU', 'the agent, ms of CPU'],
    ],
    rows,
  }
}
