import type {
  CgroupStats,
  CpuStats,
  HugetlbStats,
  MemoryData,
  MemoryStats,
  PidsStats,
} from '../../../gen/agent.ts'
import { TICKS_PER_SECOND } from '../../../os/process/proc-stat.ts'
import { blkioStatsV1 } from './blkio-v1.ts'
import type { CgroupFiles } from './cgroup-files.ts'
import { counter, limit, namedCounters } from './counters.ts'

const TICK_NS = 1_000_000_000n / BigInt(TICKS_PER_SECOND)

/** A missing file counts as zeros. */
export async function statsV1(files: CgroupFiles): Promise<CgroupStats> {
  const [cpuStats, memoryStats, pidsStats, blkioStats, hugetlbStats] = await Promise.all([
    cpu(files),
    memory(files),
    pids(files),
    blkioStatsV1(files),
    hugetlb(files),
  ])
  return { cpuStats, memoryStats, pidsStats, blkioStats, hugetlbStats }
}

async function cpu(files: CgroupFiles): Promise<CpuStats> {
  const [usage, perCpu, ticksText, throttlingText] = await Promise.all([
    files.read('cpuacct', 'cpuacct.usage'),
    files.read('cpuacct', 'cpuacct.usage_percpu'),
    files.read('cpuacct', 'cpuacct.stat'),
    files.read('cpu', 'cpu.stat'),
  ])
  const ticks = namedCounters(ticksText)
  const throttling = namedCounters(throttlingText)
  return {
    cpuUsage: {
      totalUsage: counter(usage),
      percpuUsage: (perCpu ?? '').split(/\s+/).filter(Boolean).map(counter),
      usageInKernelmode: (ticks.system ?? 0n) * TICK_NS,
      usageInUsermode: (ticks.user ?? 0n) * TICK_NS,
    },
    throttlingData: {
      periods: throttling.nr_periods ?? 0n,
      throttledPeriods: throttling.nr_throttled ?? 0n,
      throttledTime: throttling.throttled_time ?? 0n,
    },
  }
}

async function memory(files: CgroupFiles): Promise<MemoryStats> {
  const [usage, swapUsage, kernelUsage, hierarchy, statText] = await Promise.all([
    memoryData(files, 'memory'),
    memoryData(files, 'memory.memsw'),
    memoryData(files, 'memory.kmem'),
    files.read('memory', 'memory.use_hierarchy'),
    files.read('memory', 'memory.stat'),
  ])
  const stats = namedCounters(statText)
  return {
    cache: stats.cache ?? 0n,
    usage,
    swapUsage,
    kernelUsage,
    useHierarchy: counter(hierarchy) === 1n,
    stats,
  }
}

async function memoryData(files: CgroupFiles, prefix: string): Promise<MemoryData> {
  const read = async (name: string) => counter(await files.read('memory', `${prefix}.${name}`))
  const [usage, maxUsage, failcnt, max] = await Promise.all([
    read('usage_in_bytes'),
    read('max_usage_in_bytes'),
    read('failcnt'),
    read('limit_in_bytes'),
  ])
  return { usage, maxUsage, failcnt, limit: max }
}

async function pids(files: CgroupFiles): Promise<PidsStats> {
  const [current, max] = await Promise.all([
    files.read('pids', 'pids.current'),
    files.read('pids', 'pids.max'),
  ])
  return { current: counter(current), limit: limit(max, 0n) }
}

async function hugetlb(files: CgroupFiles): Promise<{ [pageSize: string]: HugetlbStats }> {
  const stats: { [pageSize: string]: HugetlbStats } = {}
  for (const name of await files.names('hugetlb')) {
    const pageSize = /^hugetlb\.([^.]+)\.usage_in_bytes$/.exec(name)?.[1]
    if (pageSize === undefined) continue
    const read = async (what: string) => counter(await files.read('hugetlb', `hugetlb.${pageSize}.${what}`))
    stats[pageSize] = {
      usage: await read('usage_in_bytes'),
      maxUsage: await read('max_usage_in_bytes'),
      failcnt: await read('failcnt'),
    }
  }
  return stats
}
