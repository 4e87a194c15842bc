import type {
  BlkioStatsEntry,
  CgroupStats,
  CpuStats,
  HugetlbStats,
  MemoryStats,
  PidsStats,
} from '../../../gen/agent.ts'
import { BlkioStats } from '../../../gen/agent.ts'
import type { CgroupFiles } from './cgroup-files.ts'
import { counter, limit, namedCounters, UNLIMITED } from './counters.ts'

const MICROSECOND_NS = 1000n

const IO_COUNTERS: readonly (readonly [key: string, op: string])[] = [
  ['rbytes', 'read'],
  ['wbytes', 'write'],
  ['rios', 'rios'],
  ['wios', 'wios'],
  ['dbytes', 'dbytes'],
  ['dios', 'dios'],
]

/** A missing file counts as zeros. */
export async function statsV2(files: CgroupFiles): Promise<CgroupStats> {
  const [cpuStats, memoryStats, pidsStats, ioText, hugetlbStats] = await Promise.all([
    cpu(files),
    memory(files),
    pids(files),
    files.read('io', 'io.stat'),
    hugetlb(files),
  ])
  const blkioStats = BlkioStats.fromPartial({ ioServiceBytesRecursive: ioEntries(ioText) })
  return { cpuStats, memoryStats, pidsStats, blkioStats, hugetlbStats }
}

async function cpu(files: CgroupFiles): Promise<CpuStats> {
  const stat = namedCounters(await files.read('cpu', 'cpu.stat'))
  const nanoseconds = (microseconds = 0n) => microseconds * MICROSECOND_NS
  return {
    cpuUsage: {
      totalUsage: nanoseconds(stat.usage_usec),
      percpuUsage: [],
      usageInKernelmode: nanoseconds(stat.system_usec),
      usageInUsermode: nanoseconds(stat.user_usec),
    },
    throttlingData: {
      periods: stat.nr_periods ?? 0n,
      throttledPeriods: stat.nr_throttled ?? 0n,
      throttledTime: nanoseconds(stat.throttled_usec),
    },
  }
}

/** Swap is counted apart, not together with memory as on v1. Kernel memory has no limit of its own. */
async function memory(files: CgroupFiles): Promise<MemoryStats> {
  const read = (name: string) => files.read('memory', `memory.${name}`)
  const [statText, current, peak, max, swapCurrent, swapPeak, swapEvents, swapMax] = await Promise.all([
    read('stat'),
    read('current'),
    read('peak'),
    read('max'),
    read('swap.current'),
    read('swap.peak'),
    read('swap.events'),
    read('swap.max'),
  ])
  const stats = namedCounters(statText)
  return {
    cache: stats.file ?? 0n,
    usage: {
      usage: counter(current),
      maxUsage: counter(peak),
      failcnt: 0n,
      limit: limit(max, UNLIMITED),
    },
    swapUsage: {
      usage: counter(swapCurrent),
      maxUsage: counter(swapPeak),
      failcnt: namedCounters(swapEvents).fail ?? 0n,
      limit: limit(swapMax, UNLIMITED),
    },
    kernelUsage: {
      usage: stats.kernel ?? 0n,
      maxUsage: 0n,
      failcnt: 0n,
      limit: statText === undefined ? 0n : UNLIMITED,
    },
    useHierarchy: false,
    stats,
  }
}

async function pids(files: CgroupFiles): Promise<PidsStats> {
  const [current, max] = await Promise.all([
    files.read('pids', 'pids.current'),
    files.read('pids', 'pids.max'),
  ])
  return { current: counter(current), limit: limit(max, 0n) }
}

/** Lines such as `8:0 rbytes=4096 wbytes=0 rios=1 wios=0 dbytes=0 dios=0`. */
function ioEntries(text: string | undefined): BlkioStatsEntry[] {
  return (text ?? '').split('\n').flatMap((line) => {
    const [device = '', ...words] = line.split(' ')
    if (!/^\d+:\d+$/.test(device)) return []
    const values = namedCounters(words.map((word) => word.replace('=', ' ')).join('\n'))
    const [major, minor] = device.split(':').map(counter)
    return IO_COUNTERS.map(([key, op]) => ({
      major: major ?? 0n,
      minor: minor ?? 0n,
      op,
      value: values[key] ?? 0n,
    }))
  })
}

async function hugetlb(files: CgroupFiles): Promise<{ [pageSize: string]: HugetlbStats }> {
  const stats: { [pageSize: string]: HugetlbStats } = {}
  for (const name of await files.names('hugetlb')) {
    const pageSize = /^hugetlb\.([^.]+)\.current$/.exec(name)?.[1]
    if (pageSize === undefined) continue
    const read = (what: string) => files.read('hugetlb', `hugetlb.${pageSize}.${what}`)
    stats[pageSize] = {
      usage: counter(await read('current')),
      maxUsage: 0n,
      failcnt: namedCounters(await read('events')).max ?? 0n,
    }
  }
  return stats
}
