import { describe, expect, it } from 'vitest'
import { CgroupStats } from '../../../src/gen/agent.ts'
import { statsV2 } from '../../../src/handlers/cgroup/stats/stats-v2.ts'
import { recordedCgroup } from '../../support/handlers/recorded-cgroup.ts'

const UNLIMITED = 18_446_744_073_709_551_615n

describe('statsV2', () => {
  it('reports CPU time and throttled time in nanoseconds', async () => {
    const files = await recordedCgroup({
      'cpu.stat':
        'usage_usec 28154\nuser_usec 9384\nsystem_usec 18769\nnice_usec 0\ncore_sched.force_idle_usec 0\n' +
        'nr_periods 4\nnr_throttled 2\nthrottled_usec 1500\nnr_bursts 0\nburst_usec 0\n',
    })
    expect((await statsV2(files)).cpuStats).toEqual({
      cpuUsage: {
        totalUsage: 28_154_000n,
        percpuUsage: [],
        usageInKernelmode: 18_769_000n,
        usageInUsermode: 9_384_000n,
      },
      throttlingData: { periods: 4n, throttledPeriods: 2n, throttledTime: 1_500_000n },
    })
  })

  it('reports memory and swap', async () => {
    const files = await recordedCgroup({
      'memory.current': '1048576\n',
      'memory.peak': '2097152\n',
      'memory.max': '4194304\n',
      'memory.swap.current': '4096\n',
      'memory.swap.peak': '8192\n',
      'memory.swap.max': '16384\n',
      'memory.swap.events': 'high 1\nmax 2\nfail 3\n',
      'memory.stat': 'anon 131072\nfile 65536\nkernel 32768\ninactive_file 512\n',
    })
    expect((await statsV2(files)).memoryStats).toEqual({
      cache: 65_536n,
      usage: { usage: 1_048_576n, maxUsage: 2_097_152n, failcnt: 0n, limit: 4_194_304n },
      swapUsage: { usage: 4096n, maxUsage: 8192n, failcnt: 3n, limit: 16_384n },
      kernelUsage: { usage: 32_768n, maxUsage: 0n, failcnt: 0n, limit: UNLIMITED },
      useHierarchy: false,
      stats: { anon: 131_072n, file: 65_536n, kernel: 32_768n, inactive_file: 512n },
    })
  })

  it('reports a missing limit as 2^64-1, that of processes as 0', async () => {
    const files = await recordedCgroup({
      'memory.max': 'max\n',
      'memory.swap.max': 'max\n',
      'pids.current': '2\n',
      'pids.max': 'max\n',
    })
    const { memoryStats, pidsStats } = await statsV2(files)
    expect(memoryStats?.usage?.limit).toBe(UNLIMITED)
    expect(memoryStats?.swapUsage?.limit).toBe(UNLIMITED)
    expect(pidsStats).toEqual({ current: 2n, limit: 0n })
  })

  it('reports six counters of each device', async () => {
    const files = await recordedCgroup({
      'io.stat':
        '254:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=5 dios=6 cost.usage=7\n254:16 \n8:0 rbytes=9 wbytes=8\n',
    })
    const { blkioStats } = await statsV2(files)
    const reported = blkioStats?.ioServiceBytesRecursive.map(({ major, minor, op, value }) => [
      `${major}:${minor}`,
      op,
      value,
    ])
    expect(reported?.slice(0, 6)).toEqual([
      ['254:0', 'read', 1n],
      ['254:0', 'write', 2n],
      ['254:0', 'rios', 3n],
      ['254:0', 'wios', 4n],
      ['254:0', 'dbytes', 5n],
      ['254:0', 'dios', 6n],
    ])
    expect(reported?.slice(6).filter(([, , value]) => value !== 0n)).toEqual([
      ['8:0', 'read', 9n],
      ['8:0', 'write', 8n],
    ])
    expect(blkioStats?.ioServicedRecursive).toEqual([])
  })

  it('reports huge pages by size, without reservations', async () => {
    const files = await recordedCgroup({
      'hugetlb.2MB.current': '4194304\n',
      'hugetlb.2MB.events': 'max 5\n',
      'hugetlb.2MB.max': 'max\n',
      'hugetlb.2MB.rsvd.current': '1\n',
    })
    const expected = { '2MB': { usage: 4_194_304n, maxUsage: 0n, failcnt: 5n } }
    expect((await statsV2(files)).hugetlbStats).toEqual(expected)
  })

  it('reports zeros for a removed cgroup', async () => {
    expect(await statsV2(await recordedCgroup({}))).toEqual(
      CgroupStats.fromPartial({
        cpuStats: { cpuUsage: {}, throttlingData: {} },
        memoryStats: { usage: {}, swapUsage: {}, kernelUsage: {} },
        pidsStats: {},
        blkioStats: {},
      }),
    )
  })
})
