import type { BlkioStats, BlkioStatsEntry } from '../../../gen/agent.ts'
import type { CgroupFiles } from './cgroup-files.ts'
import { counter } from './counters.ts'

const OPERATIONS = ['read', 'write', 'sync', 'async', 'total']

/** The I/O scheduler decides which files have values. Without its own, the throttling layer's two files are read. */
export async function blkioStatsV1(files: CgroupFiles): Promise<BlkioStats> {
  const read = (name: string) => files.read('blkio', `blkio.${name}`)
  const served = operationEntries(await read('io_serviced_recursive'))
  if (served.length === 0) {
    return {
      ...EMPTY,
      ioServiceBytesRecursive: operationEntries(await read('throttle.io_service_bytes')),
      ioServicedRecursive: operationEntries(await read('throttle.io_serviced')),
    }
  }
  return {
    ioServicedRecursive: served,
    ioServiceBytesRecursive: operationEntries(await read('io_service_bytes_recursive')),
    ioQueuedRecursive: operationEntries(await read('io_queued_recursive')),
    ioServiceTimeRecursive: operationEntries(await read('io_service_time_recursive')),
    ioWaitTimeRecursive: operationEntries(await read('io_wait_time_recursive')),
    ioMergedRecursive: operationEntries(await read('io_merged_recursive')),
    ioTimeRecursive: plainEntries(await read('io_time_recursive')),
    sectorsRecursive: plainEntries(await read('sectors_recursive')),
  }
}

const EMPTY: BlkioStats = {
  ioServiceBytesRecursive: [],
  ioServicedRecursive: [],
  ioQueuedRecursive: [],
  ioServiceTimeRecursive: [],
  ioWaitTimeRecursive: [],
  ioMergedRecursive: [],
  ioTimeRecursive: [],
  sectorsRecursive: [],
}

/** Lines such as `8:0 Read 4096`: five entries for each device, 0 for those that the kernel does not write. */
function operationEntries(text: string | undefined): BlkioStatsEntry[] {
  const devices = new Map<string, Map<string, bigint>>()
  for (const { device, words } of deviceLines(text)) {
    const [operation = '', value] = words
    const values = devices.get(device) ?? new Map<string, bigint>()
    devices.set(device, values.set(operation.toLowerCase(), counter(value)))
  }
  return [...devices].flatMap(([device, values]) =>
    OPERATIONS.map((op) => ({ ...numbersOf(device), op, value: values.get(op) ?? 0n })),
  )
}

/** Lines such as `8:0 123`. */
function plainEntries(text: string | undefined): BlkioStatsEntry[] {
  return deviceLines(text).map(({ device, words }) => ({
    ...numbersOf(device),
    op: '',
    value: counter(words[0]),
  }))
}

/** Skips the last line, which is a sum over all devices. */
function deviceLines(text: string | undefined) {
  return (text ?? '').split('\n').flatMap((line) => {
    const [device = '', ...words] = line.split(' ')
    return /^\d+:\d+$/.test(device) ? [{ device, words }] : []
  })
}

function numbersOf(device: string): { major: bigint; minor: bigint } {
  const [major, minor] = device.split(':')
  return { major: counter(major), minor: counter(minor) }
}
