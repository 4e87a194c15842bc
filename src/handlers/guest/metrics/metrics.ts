import { abortable } from '../../../base/abort.ts'
import { messageOf } from '../../../base/errors.ts'
import type { Logger } from '../../../base/log.ts'
import type { Os } from '../../../os/os.ts'
import { ioMetrics, type LimitUse, limitMetrics, processMetrics, statusMetrics } from './agent-metrics.ts'
import { type Metric, printMetrics } from './exposition.ts'
import { fileSystemMetrics } from './file-system-metrics.ts'
import { cpuMetrics, diskMetrics, loadMetrics, networkMetrics } from './guest-metrics.ts'
import { memoryMetrics, vmstatMetrics } from './memory-metrics.ts'

/** The dependencies of GetMetrics. */
export interface MetricsDependencies {
  readonly os: Pick<Os, 'files' | 'mounts' | 'volumes'>
  readonly log: Logger
  /** The limits of the API. */
  readonly limits: () => readonly LimitUse[]
}

/**
 * Creates the call GetMetrics (spec C.24 and H.5), which returns the metrics of the agent and the guest as text for
 * Prometheus. A source that cannot be read is skipped and logged.
 */
export function createMetrics({
  os,
  log,
  limits,
}: MetricsDependencies): (signal: AbortSignal) => Promise<string> {
  let scrapes = 0
  const collect = async ([name, source]: readonly [string, Source]) => {
    try {
      return await source(os)
    } catch (error) {
      log.debug('metrics left out', { source: name, error: messageOf(error) })
      return []
    }
  }
  const print = sharedRuns(async () => {
    const found = await Promise.all(Object.entries(SOURCES).map(collect))
    const count: Metric = {
      ...{ name: 'kata_agent_scrape_count', help: 'Calls of GetMetrics.', type: 'counter' },
      samples: [{ value: scrapes }],
    }
    return printMetrics([count, ...limitMetrics(limits()), ...found.flat()])
  })
  return (signal) => {
    scrapes += 1
    // statfs never returns when the server of a file system hangs.
    return abortable(print(), signal)
  }
}

/**
 * Runs `task` once for all callers of a moment: a caller that comes while it runs shares the next run with others. The
 * metrics take some milliseconds of CPU time, and hundreds of callers would hold up all other calls.
 */
function sharedRuns<T>(task: () => Promise<T>): () => Promise<T> {
  let running: Promise<unknown> = Promise.resolve()
  let next: Promise<T> | undefined
  return () => {
    next ??= running.then(() => {
      const run = task()
      next = undefined
      running = run.catch(() => {})
      return run
    })
    return next
  }
}

type Source = (os: MetricsDependencies['os']) => Promise<Metric[]>

/** The sources, by their names in the log. */
const SOURCES: Readonly<Record<string, Source>> = {
  process: ({ files }) => processMetrics(files),
  status: ({ files }) => statusMetrics(files),
  io: ({ files }) => ioMetrics(files),
  load: ({ files }) => loadMetrics(files),
  cpu: ({ files }) => cpuMetrics(files),
  vmstat: ({ files }) => vmstatMetrics(files),
  network: ({ files }) => networkMetrics(files),
  disks: ({ files }) => diskMetrics(files),
  memory: ({ files }) => memoryMetrics(files),
  fileSystems: fileSystemMetrics,
}
