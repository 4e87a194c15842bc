import type { Sample } from '../../../base/exposition.ts'
import type { Files } from '../../../os/files/files.ts'
import { TICKS_PER_SECOND } from '../../../os/process/proc-stat.ts'
import { itemMetric, type Metric } from './exposition.ts'

const MS_PER_TICK = 1000n / BigInt(TICKS_PER_SECOND)

const CPU_ITEMS = [
  ...['user', 'nice', 'system', 'idle', 'iowait', 'irq', 'softirq', 'steal', 'guest', 'guest_nice'],
]
const RECEIVED = ['bytes', 'packets', 'errs', 'drop', 'fifo', 'frame', 'compressed', 'multicast']
const SENT = ['bytes', 'packets', 'errs', 'drop', 'fifo', 'colls', 'carrier', 'compressed']
const NETWORK_ITEMS = [...RECEIVED.map((item) => `recv_${item}`), ...SENT.map((item) => `sent_${item}`)]
const DISK_ITEMS = [
  ...['reads', 'merged', 'sectors_read', 'time_reading', 'writes', 'writes_merged', 'sectors_written'],
  ...['time_writing', 'in_progress', 'time_in_progress', 'weighted_time_in_progress', 'discards'],
  ...['discards_merged', 'sectors_discarded', 'time_discarding', 'flushes', 'time_flushing'],
]

/** /proc/loadavg: three averages, and `running/existing` tasks. */
export async function loadMetrics(files: Files): Promise<Metric[]> {
  const [load1, load5, load15, tasks = ''] = (await files.readText('/proc/loadavg')).split(' ')
  const [current, most] = tasks.split('/')
  const loads = Object.entries({ load1, load5, load15 }).map(
    ([item, value]) => [item, Number(value)] as const,
  )
  const counts = Object.entries({ cur: current, max: most }).map(
    ([item, value]) => [item, Number(value)] as const,
  )
  return [itemMetric('kata_guest_load', loads), itemMetric('kata_guest_tasks', counts)]
}

/** /proc/stat: a line for all CPUs, then one for each. */
export async function cpuMetrics(files: Files): Promise<Metric[]> {
  const samples: Sample[] = []
  for (const line of (await files.readText('/proc/stat')).split('\n')) {
    const [, number, numbers] = /^cpu([0-9]*) +(.*)$/.exec(line) ?? []
    if (number === undefined || numbers === undefined) continue
    const ms = numbers.split(' ').map((ticks) => BigInt(ticks) * MS_PER_TICK)
    samples.push(...samplesOf(CPU_ITEMS, ms, { cpu: number === '' ? 'total' : number }))
  }
  return [{ name: 'kata_guest_cpu_time', samples }]
}

/** /proc/net/dev: two lines of headings, then `name: numbers`. */
export async function networkMetrics(files: Files): Promise<Metric[]> {
  const samples: Sample[] = []
  for (const line of (await files.readText('/proc/net/dev')).split('\n')) {
    const [, name, numbers] = /^ *([^\s|]+): *([0-9].*)$/.exec(line) ?? []
    if (name === undefined || numbers === undefined) continue
    samples.push(...samplesOf(NETWORK_ITEMS, numbersOf(numbers), { interface: name }))
  }
  return [{ name: 'kata_guest_netdev_stat', samples }]
}

/** /proc/diskstats: `major minor name numbers`; older kernels have fewer of them. */
export async function diskMetrics(files: Files): Promise<Metric[]> {
  const samples: Sample[] = []
  for (const line of (await files.readText('/proc/diskstats')).split('\n')) {
    const [, name, numbers] = /^ *[0-9]+ +[0-9]+ (\S+) ([0-9].*)$/.exec(line) ?? []
    if (name === undefined || numbers === undefined) continue
    samples.push(...samplesOf(DISK_ITEMS, numbersOf(numbers), { disk: name }))
  }
  return [{ name: 'kata_guest_diskstat', samples }]
}

function numbersOf(text: string): bigint[] {
  return text.trim().split(/ +/).map(BigInt)
}

function samplesOf(
  items: readonly string[],
  values: readonly bigint[],
  labels: Readonly<Record<string, string>>,
): Sample[] {
  return items.flatMap((item, index) => {
    const value = values[index]
    return value === undefined ? [] : [{ labels: { ...labels, item }, value }]
  })
}
