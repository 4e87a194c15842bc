import { isDeepStrictEqual } from 'node:util'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { SIGKILL } from '../../../src/base/signals.ts'
import type { RemoteProcess } from '../../support/containers/pod.ts'
import { type AgentPod, cgroupFile, startPod } from '../../support/host/agent-pod.ts'

let pod: AgentPod

const textOf = (controller: string, id: string, name: string) => cgroupFile(pod.started, controller, id, name)
const numberOf = (controller: string, id: string, name: string) => BigInt(textOf(controller, id, name).trim())
const pairsOf = (text: string) =>
  Object.fromEntries(
    text
      .trim()
      .split('\n')
      .map((line) => line.split(' '))
      .map(([name, value]) => [name ?? '', BigInt(value ?? 0)]),
  )

function filesOf(id: string) {
  const memory = (prefix: string) => ({
    usage: numberOf('memory', id, `${prefix}usage_in_bytes`),
    maxUsage: numberOf('memory', id, `${prefix}max_usage_in_bytes`),
    failcnt: numberOf('memory', id, `${prefix}failcnt`),
    limit: numberOf('memory', id, `${prefix}limit_in_bytes`),
  })
  const stats = pairsOf(textOf('memory', id, 'stat'))
  const ticks = pairsOf(textOf('cpuacct', id, 'stat'))
  const throttling = pairsOf(textOf('cpu', id, 'stat'))
  return {
    cpuStats: {
      cpuUsage: {
        totalUsage: numberOf('cpuacct', id, 'usage'),
        percpuUsage: textOf('cpuacct', id, 'usage_percpu').trim().split(' ').map(BigInt),
        usageInKernelmode: (ticks.system ?? 0n) * 10_000_000n,
        usageInUsermode: (ticks.user ?? 0n) * 10_000_000n,
      },
      throttlingData: {
        periods: throttling.nr_periods,
        throttledPeriods: throttling.nr_throttled,
        throttledTime: throttling.throttled_time,
      },
    },
    memoryStats: {
      cache: stats.cache,
      usage: memory(''),
      swapUsage: memory('memsw.'),
      kernelUsage: memory('kmem.'),
      useHierarchy: textOf('memory', id, 'use_hierarchy').trim() === '1',
      stats,
    },
    pidsStats: { current: numberOf('pids', id, 'current'), limit: numberOf('pids', id, 'max') },
  }
}

describe('StatsContainer', () => {
  beforeAll(async () => {
    pod = await startPod()
  })
  afterAll(() => pod.stop())

  async function runLimited(id: string): Promise<RemoteProcess> {
    const work = 'i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; echo done; read line'
    const Resources = {
      Memory: { Limit: 64n << 20n, Swap: 128n << 20n },
      CPU: { Quota: 20_000n, Period: 100_000n },
      Pids: { Limit: 50n },
    }
    const init = await pod.run(id, ['sh', '-c', work], { linux: { Resources } })
    await init.readUntil('done')
    return init
  }

  /**
   * Reads the stats and the files of a frozen container until they agree: the kernel updates some counters late, that of
   * the periods only at the end of the first period.
   */
  async function still(id: string) {
    for (;;) {
      const files = filesOf(id)
      const told = (await pod.agent.statsContainer({ containerId: id })).cgroupStats
      if (files.cpuStats.throttlingData.periods && isDeepStrictEqual(filesOf(id), files))
        return { told, files }
    }
  }

  it('reports each field as the files of the cgroup have it', async () => {
    const init = await runLimited('counted')
    await pod.agent.pauseContainer({ containerId: 'counted' })
    const { told, files } = await still('counted')
    expect(told).toMatchObject(files)
    expect(told?.pidsStats).toEqual({ current: 1n, limit: 50n })
    expect(told?.memoryStats?.usage?.limit).toBe(64n << 20n)
    expect(told?.cpuStats?.cpuUsage?.totalUsage).toBeGreaterThan(0n)
    expect(told?.cpuStats?.throttlingData?.periods).toBeGreaterThan(0n)
    await pod.agent.resumeContainer({ containerId: 'counted' })
    await init.write('end\n')
    expect(await init.wait()).toBe(0)
    await pod.remove('counted')
  })

  it('reports the usage of a stopped container until it is removed', async () => {
    const init = await runLimited('stopped')
    await pod.agent.signalProcess({ containerId: 'stopped', signal: SIGKILL })
    await init.wait()
    const { cgroupStats } = await pod.agent.statsContainer({ containerId: 'stopped' })
    expect(cgroupStats?.pidsStats).toEqual({ current: 0n, limit: 50n })
    expect(cgroupStats?.cpuStats?.cpuUsage?.totalUsage).toBe(numberOf('cpuacct', 'stopped', 'usage'))
    await pod.remove('stopped')
    await expect(pod.agent.statsContainer({ containerId: 'stopped' })).rejects.toMatchObject({
      code: 'INVALID_ARGUMENT',
      message: 'invalid container id',
    })
  })
})
