import type { Files } from '../../../os/files/files.ts'
import { procStatFields, TICKS_PER_SECOND } from '../../../os/process/proc-stat.ts'
import { itemGauge, type Metric, namedNumbers } from './exposition.ts'

/** A limit of the API, and how much of it is in use. */
export interface LimitUse {
  readonly name: string
  readonly limit: number
  readonly used: number
}

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

/** Threads, time and memory of the agent's own process, from /proc/self/stat. */
export async function processMetrics(files: Files): Promise<Metric[]> {
  const fields = procStatFields(await files.readText('/proc/self/stat'))
  const field = (name: keyof typeof STAT) => Number(fields[STAT[name]])
  const gauge = (name: string, help: string, value: number): Metric => ({
    ...{ name: `kata_agent_${name}`, help, type: 'gauge' },
    samples: [{ value }],
  })
  const times = (['utime', 'stime', 'cutime', 'cstime'] as const).map((name) => [name, field(name)] as const)
  return [
    gauge('threads', 'Threads of the agent.', field('threads')),
    gauge('total_time', 'CPU seconds of the agent.', (field('utime') + field('stime')) / TICKS_PER_SECOND),
    gauge('total_vm', 'Virtual memory of the agent in bytes.', field('virtualBytes')),
    gauge('total_rss', 'Resident memory of the agent in bytes.', field('residentPages') * PAGE_BYTES),
    itemGauge('kata_agent_proc_stat', 'CPU ticks of the agent and of its children.', times),
  ]
}

/** /proc/self/status: memory in kB, and context switches. */
export async function statusMetrics(files: Files): Promise<Metric[]> {
  const values = namedNumbers(await files.readText('/proc/self/status'))
  const items = STATUS_ITEMS.map((name) => [name.toLowerCase(), values.get(name)] as const)
  return [itemGauge('kata_agent_proc_status', 'Memory (kB) and context switches of the agent.', items)]
}

/** /proc/self/io. */
export async function ioMetrics(files: Files): Promise<Metric[]> {
  const values = namedNumbers(await files.readText('/proc/self/io'))
  const items = IO_ITEMS.map((name) => [name, values.get(name)] as const)
  return [itemGauge('kata_agent_io_stat', 'What the agent read and wrote.', items)]
}

/** The limits of the API over all connections, and their use. */
export function limitMetrics(limits: readonly LimitUse[]): Metric[] {
  const items = (part: 'limit' | 'used') => limits.map((use) => [use.name, use[part]] as const)
  return [
    itemGauge('microvm_agent_limit', 'Limits of the API over all connections.', items('limit')),
    itemGauge('microvm_agent_limit_used', 'What is in use of these limits.', items('used')),
  ]
}
