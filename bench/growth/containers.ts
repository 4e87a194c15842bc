import { readFileSync } from 'node:fs'
import { benchPod } from '../support/bench-pod.ts'
import { median } from '../support/figure.ts'
import { elapsedMs, execTrue } from '../support/runtime-pair.ts'

const COUNTS = [1, 2, 5, 10, 20, 50, 100]
const ROUNDS = 9
const IDLE = ['/bin/sleep', '1000000']

/** What a call costs beside so many idle containers. */
export async function containers() {
  const pod = await benchPod({ runtime: 'crun' })
  const rows: number[][] = []
  try {
    let present = 0
    for (const count of COUNTS) {
      for (; present < count; present += 1) await pod.run(`idle-${present}`, IDLE)
      const [started, removed, executed]: [number[], number[], number[]] = [[], [], []]
      for (let round = 0; round < ROUNDS; round += 1) {
        started.push(await elapsedMs(() => pod.run('one-more', IDLE)))
        await pod.agent.signalProcess({ containerId: 'one-more', execId: '', signal: 9 })
        await pod.agent.waitProcess({ containerId: 'one-more', execId: '' })
        removed.push(await elapsedMs(() => pod.remove('one-more')))
        executed.push(await elapsedMs(() => execTrue(pod.agent, 'idle-0', `true-${count}-${round}`)))
      }
      rows.push([count, ...[started, executed, removed].map(median), residentMib(pod.started.agentPid())])
    }
  } finally {
    await pod.stop()
  }
  return {
    title: 'Calls beside idle containers',
    text: 'The time of a call for one more container, and for a process in the first one, with crun.',
    columns: ['containers', 'create and start, ms', 'exec `true`, ms', 'remove, ms', 'the agent, MiB'],
    rows,
  }
}

function residentMib(pid: number): number {
  const kib = /^VmRSS:\s+(\d+) kB/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]
  return Number(kib) / 1024
}
