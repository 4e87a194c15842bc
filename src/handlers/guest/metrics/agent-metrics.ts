import type { Files } from '../../../os/files/files.ts'
import { procStatFields, TICKS_PER_SECOND } from '../../../os/process/proc-stat.ts'
import { itemMetric, type Metric, namedNumbers, singleMetric } from './exposition.ts'

const PAGE_BYTES = 4096

/** Fields of /proc/PID/stat, counted from the state, which comes after the program's name (proc(5)). */
const STAT = {
  utime: 11,
  stime: 12,
  cutime: 13,
  cstime: 14,
  threads: 17,
  virtualBytes: 20,
  residentPages: 21,
}

const STATUS_ITEMS = [
  ...['VmPeak', 'VmSize', 'VmLck', 'VmPin', 'VmHWM', 'VmRSS', 'RssAnon', 'RssFile', 'RssShmem', 'VmData'],
  ...['VmStk', 'VmExe', 'VmLib', 'VmPTE', 'VmSwap', 'HugetlbPages'],
  ...['voluntary_ctxt_switches', 'nonvoluntary_ctxt_switches'],
]
const IO_ITEMS = [
  ...['rchar', 'wchar', 'syscr', 'syscw', 'read_bytes', 'write_bytes', 'cancelled_write_bytes'],
]

export async function processMetrics(files: Files): Promise<Metric[]> {
  const fields = procStatFields(await files.readText('/proc/self/stat'))
  const field = (name: keyof typeof STAT) => Number(fields[STAT[name]])
  const times = (['utime', 'stime', 'cutime', 'cstime'] as const).map((name) => [name, field(name)] as const)
  return [
    singleMetric('kata_agent_threads', field('threads')),
    singleMetric('kata_agent_total_time', (field('utime') + field('stime')) / TICKS_PER_SECOND),
    singleMetric('kata_agent_total_vm', field('virtualBytes')),
    singleMetric('kata_agent_total_rss', field('residentPages') * PAGE_BYTES),
    itemMetric('kata_agent_proc_stat', times),
  ]
}

export async function statusMetrics(files: Files): Promise<Metric[]> {
  const values = namedNumbers(await files.readText('/proc/self/status'))
  const items = STATUS_ITEMS.map((name) => [name.toLowerCase(), values.get(name)] as const)
  return [itemMetric('kata_agent_proc_status', items)]
}

export async function ioMetrics(files: Files): Promise<Metric[]> {
  const values = namedNumbers(await files.readText('/proc/self/io'))
  const items = IO_ITEMS.map((name) => [name, values.get(name)] as const)
  return [itemMetric('kata_agent_io_stat', items)]
}
