import { readFileSync } from 'node:fs'
import { benchPod } from '../support/bench-pod.ts'
import { median, report } from '../support/figure.ts'

/**
 * GetMetrics with 100 containers: the event loop's CPU time for a call, and the longest delay of another call. The
 * floor is the same without containers.
 */
const CONTAINERS = 100
const AT_ONCE = 4
const ROUNDS = 61
const WARM_UP_ROUNDS = 20
const IDLE = ['/bin/sleep', '1000000']

const pod = await benchPod()
try {
  const floor = await loopMs()
  for (let from = 0; from < CONTAINERS; from += AT_ONCE) {
    const ids = Array.from({ length: AT_ONCE }, (_, number) => `crowd-${from + number}`)
    await Promise.all(ids.map((id) => pod.run(id, IDLE)))
  }
  const value = await loopMs()
  report({ figure: 'GetMetrics, 100 containers: CPU time of the loop', unit: 'ms', value, floor, limit: 3 })
  const alone = await callMs(async () => {})
  const beside = await callMs(() => pod.agent.getMetrics({}))
  report({ figure: 'GetGuestDetails beside it', unit: 'ms', value: beside, floor: alone, limit: 5 })
} finally {
  await pod.stop()
}

async function loopMs(): Promise<number> {
  const times: number[] = []
  for (let round = 0; round < WARM_UP_ROUNDS + ROUNDS; round++) {
    const before = threadMs()
    await pod.agent.getMetrics({})
    if (round >= WARM_UP_ROUNDS) times.push(threadMs() - before)
  }
  return median(times)
}

function threadMs(): number {
  const pid = pod.started.agentPid()
  return Number(readFileSync(`/proc/${pid}/task/${pid}/schedstat`, 'utf8').split(' ')[0]) / 1e6
}

/** The time of a call that arrives while `other` is served. */
async function callMs(other: () => Promise<unknown>): Promise<number> {
  const times: number[] = []
  for (let round = 0; round < ROUNDS; round++) {
    const served = other()
    const begin = performance.now()
    await pod.agent.getGuestDetails({})
    times.push(performance.now() - begin)
    await served
  }
  return median(times)
}
