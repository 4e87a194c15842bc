import { readdirSync, readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { beforeEach, describe, expect, it } from 'vitest'
import { cancelled, neverAborted } from '../../../src/base/abort.ts'
import { Histogram } from '../../../src/base/histogram.ts'
import { silentLogger } from '../../../src/base/log.ts'
import { createMetrics } from '../../../src/handlers/guest/metrics/metrics.ts'
import type { OwnFigures } from '../../../src/handlers/guest/metrics/own-figures.ts'
import { FakeOs } from '../../support/fakes/fake-os.ts'
import { noFigures } from '../../support/handlers/guest/own-figures.ts'
import { settle } from '../../support/pending.ts'

const RECORDED = join(import.meta.dirname, '../../fixtures/proc')
const PATHS = readdirSync(RECORDED, { recursive: true, encoding: 'utf8' }).filter((path) =>
  statSync(join(RECORDED, path)).isFile(),
)

describe('GetMetrics', () => {
  let os: FakeOs

  beforeEach(async () => {
    os = new FakeOs()
    os.mounts.entries.length = 0
    for (const path of PATHS) await os.files.put(`/proc/${path}`, readFileSync(join(RECORDED, path), 'utf8'))
  })

  it('reports metrics of the agent and of the guest', async () => {
    const lines = (await values()).filter((line) => line.startsWith('kata_'))
    expect(lines).toEqual([
      'kata_agent_scrape_count 1',
      'kata_agent_threads 11',
      'kata_agent_total_time 3',
      'kata_agent_total_vm 1048576000',
      'kata_agent_total_rss 10240000',
      ...items('kata_agent_proc_stat', { utime: 250, stime: 50, cutime: 7, cstime: 3 }),
      ...items('kata_agent_proc_status', {
        ...{ vmpeak: 1_024_000, vmrss: 10_000, hugetlbpages: 0, voluntary_ctxt_switches: 42 },
      }),
      ...items('kata_agent_io_stat', { rchar: 1000, wchar: 2000, syscr: 3, read_bytes: 4096 }),
      ...items('kata_guest_load', { load1: 0.25, load5: 0.1, load15: 1.05 }),
      ...items('kata_guest_tasks', { cur: 2, max: 123 }),
      ...cpuLines('total', [1000, 0, 200, 30_000, 40, 0, 10, 0, 0, 0]),
      ...cpuLines('0', [600, 0, 100, 15_000, 20, 0, 10, 0, 0, 0]),
      'kata_guest_vm_stat{item="nr_free_pages"} 1000',
      'kata_guest_vm_stat{item="pgfault"} 18446744073709551615',
      ...[840, 10, 1, 2, 3, 4, 5, 6, 841, 11, 7, 8, 9, 10, 11, 12].map(
        (value, index) => `kata_guest_netdev_stat{interface="lo",item="${NETWORK[index]}"} ${value}`,
      ),
      ...diskLines('vda', [10, 1, 200, 5, 3, 2, 40, 6, 0, 7, 8, 9, 10, 11, 12, 13, 14]),
      ...diskLines('vdb', [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]),
      ...items('kata_guest_meminfo', {
        ...{ mem_total: 492_544_000, active_anon: 102_400, hugepages_total: 4, hugepagesize: 2_097_152 },
      }),
    ])
  })

  it('counts its calls, and leaves out sources that cannot be read', async () => {
    for (const path of PATHS) await os.files.removeFile(`/proc/${path}`)
    await os.files.put('/proc/stat', 'nonsense')
    const fails = () => {
      throw new Error('none')
    }
    const figures = Object.keys(noFigures()).map((name) => [name, fails])
    const metrics = metricsOf(Object.fromEntries(figures))
    await metrics(neverAborted)
    const text = await metrics(neverAborted)
    expect(text.replace(/^.*microvm_agent_heap_bytes.*\n/gm, '')).toBe(
      '# HELP kata_agent_scrape_count Calls of GetMetrics.\n# TYPE kata_agent_scrape_count counter\nkata_agent_scrape_count 2\n',
    )
  })

  it('collects once for all callers of a moment, and anew for those that arrive meanwhile', async () => {
    let collections = 0
    const limits = () => {
      collections += 1
      return []
    }
    const metrics = metricsOf({ limits })
    const first = metrics(neverAborted)
    await Promise.resolve()
    await Promise.all([first, metrics(neverAborted), metrics(neverAborted), metrics(neverAborted)])
    expect(collections).toBe(2)
  })

  it('reports the limits of the API and their use', async () => {
    const limits = () => [{ name: 'calls', limit: 4096, used: 3 }]
    const text = await metricsOf({ limits })(neverAborted)
    expect(text).toContain('\nmicrovm_agent_limit{item="calls"} 4096\n')
    expect(text).toContain('\nmicrovm_agent_limit_used{item="calls"} 3\n')
  })

  it('reports each writable file system once', async () => {
    const usage = { blockBytes: 4096n, blocks: 10n, freeBlocks: 4n, inodes: 7n, freeInodes: 5n }
    await mount('/dev/vdb', '/vol', 'ext4', 'rw,relatime')
    const [first] = os.mounts.entries
    if (first !== undefined) os.mounts.entries.push({ ...first, mountPoint: '/again' })
    await mount('/dev/vda', '/', 'ext4', 'ro,relatime')
    await mount('tmpfs', '/run', 'tmpfs', 'rw')
    await mount('overlay', '/merged', 'overlay', 'rw')
    await mount('/dev/vdc', '/gone', 'xfs', 'rw')
    for (const path of ['/vol', '/again', '/', '/run', '/merged']) os.volumes.usages.set(path, usage)
    const overlay = os.mounts.entries.find(({ type }) => type === 'overlay')
    const device = `${overlay?.major}:${overlay?.minor}`
    const lines = (await values()).filter((line) => line.startsWith('kata_guest_filesystem'))
    expect(lines).toEqual([
      ...roomLines('bytes', '/vol', 'vdb', [40_960, 24_576, 16_384]),
      ...roomLines('bytes', '/merged', device, [40_960, 24_576, 16_384]),
      ...roomLines('inodes', '/vol', 'vdb', [7, 2, 5]),
      ...roomLines('inodes', '/merged', device, [7, 2, 5]),
    ])
  })

  it('stops waiting for a hung file system when the call is cancelled', async () => {
    await mount('/dev/vdb', '/vol', 'ext4', 'rw')
    os.volumes.usage = () => new Promise(() => {})
    const call = new AbortController()
    const asked = metricsOf()(call.signal)
    call.abort(cancelled())
    await expect(asked).rejects.toMatchObject({ code: 'CANCELLED' })
  })

  it('leaves out a source that hangs, and does not read it again before it has ended', async () => {
    await mount('/dev/vdb', '/vol', 'ext4', 'rw')
    let readings = 0
    os.volumes.usage = () => {
      readings += 1
      return new Promise(() => {})
    }
    const metrics = metricsOf()
    const first = metrics(neverAborted)
    await settle()
    os.clock.advance(2000)
    expect(await first).toContain('kata_guest_load')
    expect(await metrics(neverAborted)).not.toContain('filesystem')
    expect(readings).toBe(1)
  })

  it('reports what the agent counts of itself', async () => {
    const slow = new Histogram([0.5, 2])
    for (const seconds of [0.1, 1, 1.5, 3]) slow.observe(seconds)
    const text = await metricsOf({
      methods: () => [
        { rpc: 'grpc.Health/Check', seconds: slow.distribution, failures: new Map([['INTERNAL', 2]]) },
      ],
      inFlight: () => ['a/b', 'a/b', 'c/d'],
      stdioBytes: () => ({ stdin: 1, stdout: 2, stderr: 3 }),
      containerStates: () => ['running', 'running', 'stopped'],
      containers: async () => [
        { id: 'c1', cpuSeconds: 1.25, memoryBytes: 4096n, pids: undefined, oomKills: 1n },
      ],
    })(neverAborted)
    for (const line of [
      'microvm_agent_rpc_duration_seconds_bucket{method="grpc.Health/Check",le="0.5"} 1',
      'microvm_agent_rpc_duration_seconds_bucket{method="grpc.Health/Check",le="2"} 3',
      'microvm_agent_rpc_duration_seconds_bucket{method="grpc.Health/Check",le="+Inf"} 4',
      'microvm_agent_rpc_duration_seconds_sum{method="grpc.Health/Check"} 5.6',
      'microvm_agent_rpc_duration_seconds_count{method="grpc.Health/Check"} 4',
      'microvm_agent_rpc_errors_total{method="grpc.Health/Check",code="INTERNAL"} 2',
      'microvm_agent_rpc_in_flight{method="a/b"} 2',
      'microvm_agent_stdio_bytes_total{stream="stderr"} 3',
      'microvm_agent_containers{state="running"} 2',
      'microvm_container_cpu_seconds_total{container="c1"} 1.25',
      'microvm_container_memory_bytes{container="c1"} 4096',
      'microvm_container_oom_kills_total{container="c1"} 1',
    ]) {
      expect(text).toContain(`\n${line}\n`)
    }
    expect(text).not.toContain('microvm_container_pids')
  })

  function metricsOf(figures: Partial<OwnFigures> = {}) {
    return createMetrics({ os, log: silentLogger(), figures: { ...noFigures(), ...figures } })
  }

  async function values(): Promise<string[]> {
    const text = await metricsOf()(neverAborted)
    return text.split('\n').filter((line) => line !== '' && !line.startsWith('#'))
  }

  async function mount(source: string, target: string, type: string, options: string): Promise<void> {
    await os.mounts.mount({ source, target, type, flags: options.includes('ro') ? ['ro'] : [], data: '' })
  }
})

const NETWORK = [
  ...['recv_bytes', 'recv_packets', 'recv_errs', 'recv_drop', 'recv_fifo', 'recv_frame', 'recv_compressed'],
  ...['recv_multicast', 'sent_bytes', 'sent_packets', 'sent_errs', 'sent_drop', 'sent_fifo', 'sent_colls'],
  ...['sent_carrier', 'sent_compressed'],
]
const CPU = ['user', 'nice', 'system', 'idle', 'iowait', 'irq', 'softirq', 'steal', 'guest', 'guest_nice']
const DISK = [
  ...['reads', 'merged', 'sectors_read', 'time_reading', 'writes', 'writes_merged', 'sectors_written'],
  ...['time_writing', 'in_progress', 'time_in_progress', 'weighted_time_in_progress', 'discards'],
  ...['discards_merged', 'sectors_discarded', 'time_discarding', 'flushes', 'time_flushing'],
]

function items(name: string, values: Readonly<Record<string, number>>): string[] {
  return Object.entries(values).map(([item, value]) => `${name}{item="${item}"} ${value}`)
}

function cpuLines(cpu: string, values: readonly number[]): string[] {
  return values.map((value, index) => `kata_guest_cpu_time{cpu="${cpu}",item="${CPU[index]}"} ${value}`)
}

function diskLines(disk: string, values: readonly number[]): string[] {
  return values.map((value, index) => `kata_guest_diskstat{disk="${disk}",item="${DISK[index]}"} ${value}`)
}

function roomLines(unit: string, path: string, device: string, values: readonly number[]): string[] {
  return ['total', 'used', 'available'].map(
    (item, index) =>
      `kata_guest_filesystem_${unit}{mount="${path}",device="${device}",item="${item}"} ${values[index]}`,
  )
}
