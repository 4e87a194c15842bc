import { describe, expect, it } from 'vitest'
import { CgroupStats } from '../../../src/gen/agent.ts'
import { cgroupFiles } from '../../../src/handlers/cgroup/stats/cgroup-files.ts'
import { statsV1 } from '../../../src/handlers/cgroup/stats/stats-v1.ts'
import { FakeOs } from '../../support/fakes/fake-os.ts'
import { recordedCgroup } from '../../support/handlers/recorded-cgroup.ts'

const THROTTLED_IO = `7:0 Read 4096
7:0 Write 8192
7:0 Sync 12288
7:0 Async 0
7:0 Discard 512
7:0 Total 12800
259:12 Read 1
259:12 Total 1
Total 12801
`

describe('statsV1', () => {
  it('reports CPU time in nanoseconds', async () => {
    const files = await recordedCgroup({
      'cpuacct.usage': '3301316104283\n',
      'cpuacct.usage_percpu': '3301316104283 3405822002415 \n',
      'cpuacct.stat': 'user 550260\nsystem 120453\n',
      'cpu.stat': 'nr_periods 12\nnr_throttled 3\nthrottled_time 4500600\nnr_bursts 0\nburst_time 0\n',
    })
    expect((await statsV1(files)).cpuStats).toEqual({
      cpuUsage: {
        totalUsage: 3_301_316_104_283n,
        percpuUsage: [3_301_316_104_283n, 3_405_822_002_415n],
        usageInKernelmode: 1_204_530_000_000n,
        usageInUsermode: 5_502_600_000_000n,
      },
      throttlingData: { periods: 12n, throttledPeriods: 3n, throttledTime: 4_500_600n },
    })
  })

  it('reports memory, memory with swap, and kernel memory', async () => {
    const files = await recordedCgroup({
      'memory.usage_in_bytes': '1048576\n',
      'memory.max_usage_in_bytes': '2097152\n',
      'memory.failcnt': '7\n',
      'memory.limit_in_bytes': '4194304\n',
      'memory.memsw.usage_in_bytes': '1052672\n',
      'memory.memsw.max_usage_in_bytes': '2101248\n',
      'memory.memsw.failcnt': '8\n',
      'memory.memsw.limit_in_bytes': '8388608\n',
      'memory.kmem.usage_in_bytes': '4096\n',
      'memory.kmem.max_usage_in_bytes': '8192\n',
      'memory.kmem.failcnt': '9\n',
      'memory.kmem.limit_in_bytes': '9223372036854771712\n',
      'memory.use_hierarchy': '1\n',
      'memory.stat': 'cache 65536\nrss 131072\nhierarchical_memory_limit 4194304\ntotal_inactive_file 512\n',
    })
    expect((await statsV1(files)).memoryStats).toEqual({
      cache: 65_536n,
      usage: { usage: 1_048_576n, maxUsage: 2_097_152n, failcnt: 7n, limit: 4_194_304n },
      swapUsage: { usage: 1_052_672n, maxUsage: 2_101_248n, failcnt: 8n, limit: 8_388_608n },
      kernelUsage: { usage: 4096n, maxUsage: 8192n, failcnt: 9n, limit: 9_223_372_036_854_771_712n },
      useHierarchy: true,
      stats: {
        cache: 65_536n,
        rss: 131_072n,
        hierarchical_memory_limit: 4_194_304n,
        total_inactive_file: 512n,
      },
    })
  })

  it.each([
    ['20\n', 20n],
    ['max\n', 0n],
  ])('reports a pids limit of %j', async (text, limit) => {
    const files = await recordedCgroup({ 'pids.current': '3\n', 'pids.max': text })
    expect((await statsV1(files)).pidsStats).toEqual({ current: 3n, limit })
  })

  it('reports five operations of each device, from the throttling layer when no scheduler counts', async () => {
    const files = await recordedCgroup({
      'blkio.io_serviced_recursive': 'Total 0\n',
      'blkio.io_service_bytes_recursive': '7:0 Read 99\nTotal 99\n',
      'blkio.throttle.io_service_bytes': THROTTLED_IO,
      'blkio.throttle.io_serviced':
        '7:0 Read 1\n7:0 Write 2\n7:0 Sync 3\n7:0 Async 4\n7:0 Total 3\nTotal 3\n',
    })
    const { blkioStats } = await statsV1(files)
    const device = { major: 7n, minor: 0n }
    const other = { major: 259n, minor: 12n }
    expect(blkioStats?.ioServiceBytesRecursive).toEqual([
      { ...device, op: 'read', value: 4096n },
      { ...device, op: 'write', value: 8192n },
      { ...device, op: 'sync', value: 12_288n },
      { ...device, op: 'async', value: 0n },
      { ...device, op: 'total', value: 12_800n },
      { ...other, op: 'read', value: 1n },
      { ...other, op: 'write', value: 0n },
      { ...other, op: 'sync', value: 0n },
      { ...other, op: 'async', value: 0n },
      { ...other, op: 'total', value: 1n },
    ])
    expect(blkioStats?.ioServicedRecursive.map(({ value }) => value)).toEqual([1n, 2n, 3n, 4n, 3n])
    expect(blkioStats?.ioTimeRecursive).toEqual([])
  })

  it('reports all counters of the scheduler', async () => {
    const lines = (value: number) => `8:0 Read ${value}\n8:0 Total ${value}\nTotal ${value}\n`
    const files = await recordedCgroup({
      'blkio.io_serviced_recursive': lines(1),
      'blkio.io_service_bytes_recursive': lines(2),
      'blkio.io_queued_recursive': lines(3),
      'blkio.io_service_time_recursive': lines(4),
      'blkio.io_wait_time_recursive': lines(5),
      'blkio.io_merged_recursive': lines(6),
      'blkio.io_time_recursive': '8:0 7\n',
      'blkio.sectors_recursive': '8:0 8\n',
      'blkio.throttle.io_serviced': lines(99),
    })
    const { blkioStats } = await statsV1(files)
    const reads = Object.entries(blkioStats ?? {}).map(([list, entries]) => [list, entries[0]?.value])
    expect(Object.fromEntries(reads)).toEqual({
      ioServicedRecursive: 1n,
      ioServiceBytesRecursive: 2n,
      ioQueuedRecursive: 3n,
      ioServiceTimeRecursive: 4n,
      ioWaitTimeRecursive: 5n,
      ioMergedRecursive: 6n,
      ioTimeRecursive: 7n,
      sectorsRecursive: 8n,
    })
    expect(blkioStats?.ioTimeRecursive).toEqual([{ major: 8n, minor: 0n, op: '', value: 7n }])
    expect(blkioStats?.sectorsRecursive).toEqual([{ major: 8n, minor: 0n, op: '', value: 8n }])
  })

  it('reports huge pages by size, without reservations', async () => {
    const files = await recordedCgroup({
      'hugetlb.2MB.usage_in_bytes': '4194304\n',
      'hugetlb.2MB.max_usage_in_bytes': '6291456\n',
      'hugetlb.2MB.failcnt': '5\n',
      'hugetlb.2MB.rsvd.usage_in_bytes': '1\n',
      'hugetlb.1GB.usage_in_bytes': '0\n',
    })
    expect((await statsV1(files)).hugetlbStats).toEqual({
      '2MB': { usage: 4_194_304n, maxUsage: 6_291_456n, failcnt: 5n },
      '1GB': { usage: 0n, maxUsage: 0n, failcnt: 0n },
    })
  })

  it('reads each controller in its own hierarchy', async () => {
    const os = new FakeOs()
    await os.files.put('/v1/cpuacct/c1/cpuacct.usage', '5')
    await os.files.put('/v1/pids/c1/pids.current', '6')
    await os.files.put('/v1/memory/c1/memory.failcnt', '7')
    const stats = await statsV1(cgroupFiles(os.files, (controller) => `/v1/${controller}/c1`))
    expect(stats.cpuStats?.cpuUsage?.totalUsage).toBe(5n)
    expect(stats.pidsStats?.current).toBe(6n)
    expect(stats.memoryStats?.usage?.failcnt).toBe(7n)
  })

  it('reports zeros for a removed cgroup', async () => {
    const none = { usage: 0n, maxUsage: 0n, failcnt: 0n, limit: 0n }
    expect(await statsV1(await recordedCgroup({}))).toEqual(
      CgroupStats.fromPartial({
        cpuStats: { cpuUsage: {}, throttlingData: {} },
        memoryStats: { usage: none, swapUsage: none, kernelUsage: none },
        pidsStats: {},
        blkioStats: {},
      }),
    )
  })
})
