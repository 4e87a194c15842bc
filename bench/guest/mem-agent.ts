import { bind } from '../../test/support/containers/container-requests.ts'
import type { Pod } from '../../test/support/containers/pod.ts'
import { bootPod } from '../../test/support/vm/guest-pod.ts'
import { report } from '../support/figure.ts'

/**
 * Memory of an idle container after a reclaim by the mem-agent, against a program that asks the kernel for all of it. The
 * mem-agent runs for this many periods of one second. A period may free what the previous one left.
 */
const PERIODS = 8

async function idleContainer(pod: Pod, id: string, reclaim: () => Promise<unknown>) {
  const script = 'find /guest/usr -type f -exec cat {} + > /dev/null; echo read; read line'
  const init = await pod.run(id, ['sh', '-c', script], { mounts: [bind('/usr', '/guest/usr')] })
  await init.readUntil('read')
  const before = await memoryMib(pod, id)
  await reclaim()
  const after = await memoryMib(pod, id)
  await pod.remove(id)
  return { before, after }
}

async function memoryMib(pod: Pod, containerId: string): Promise<number> {
  const { cgroupStats } = await pod.agent.statsContainer({ containerId })
  return Number(cgroupStats?.memoryStats?.usage?.usage ?? 0n) / 2 ** 20
}

/**
 * `node bench/guest/mem-agent.ts`: the memory that an idle container keeps after the mem-agent has reclaimed, against a
 * program that asks the kernel for all of it.
 */
const append = ['enable', 'memcg_disable=1', 'compact_disable=1'].map((key) => `agent.mem_agent_${key}`)
const { guest, pod } = await bootPod({ append })
try {
  const mounts = [bind('/sys/fs/cgroup', '/guest/cgroup')]
  const askForAll = 'while echo 512M > /guest/cgroup/containers/bare/memory.reclaim; do :; done 2> /dev/null'
  const bare = await idleContainer(pod, 'bare', () => pod.output('asking', askForAll, { mounts }))
  const served = await idleContainer(pod, 'served', async () => {
    const settings = { periodSecs: 1n, evictionRunAgingCountMin: 1n }
    await pod.agent.memAgentMemcgSet({ disabled: false, ...settings })
    await pod.output('waiting', `sleep ${PERIODS}`)
    await pod.agent.memAgentMemcgSet({ disabled: true })
  })
  report({
    ...{ figure: 'memory of an idle container after reclaim', unit: 'MiB' },
    ...{ value: served.after, floor: bare.after, limit: 1.5, phases: served },
  })
} finally {
  await guest.stop()
}
