import { abortable, withTimeout } from '../../../base/abort.ts'
import { AgentError, messageOf } from '../../../base/errors.ts'
import type { Logger } from '../../../base/log.ts'
import type { Clock } from '../../../os/clock.ts'
import type { Os } from '../../../os/os.ts'
import { ioMetrics, processMetrics, statusMetrics } from './agent-metrics.ts'
import { type Metric, printMetric, singleMetric } from './exposition.ts'
import { fileSystemMetrics } from './file-system-metrics.ts'
import { cpuMetrics, diskMetrics, loadMetrics, networkMetrics } from './guest-metrics.ts'
import { memoryMetrics, vmstatMetrics } from './memory-metrics.ts'
import { OWN_SOURCES, type OwnFigures } from './own-figures.ts'

/** The dependencies of GetMetrics. */
export interface MetricsDependencies {
  readonly os: Pick<Os, 'clock' | 'files' | 'mounts' | 'volumes'>
  readonly log: Logger
  /** What the agent counts of itself. */
  readonly figures: OwnFigures
}

/** How long one source may take: a file system whose server hangs never answers. */
const SOURCE_MS = 2000

/**
 * Creates the call GetMetrics, which returns the metrics of the agent and the guest as text for Prometheus. A source
 * that cannot be read in time is skipped and logged. Each is read and printed in a turn of the event loop of its own,
 * so that other calls are served meanwhile.
 */
export function createMetrics({
  os,
  log,
  figures,
}: MetricsDependencies): (signal: AbortSignal) => Promise<string> {
  let scrapes = 0
  const sources = [
    ...Object.entries(SOURCES).map(([name, read]) => new Source(name, () => read(os))),
    ...Object.entries(OWN_SOURCES).map(([name, read]) => new Source(name, async () => read(figures))),
  ]
  const print = sharedRuns(async () => {
    const texts = [printMetric(singleMetric('kata_agent_scrape_count', scrapes))]
    for (const source of sources) {
      try {
        texts.push((await source.read(os.clock)).map(printMetric).join(''))
      } catch (error) {
        log.debug('metrics left out', { source: source.name, error: messageOf(error) })
      }
      await new Promise<void>((resolve) => setImmediate(resolve))
    }
    return texts.join('')
  })
  return (signal) => {
    scrapes += 1
    return abortable(print(), signal)
  }
}

/** A source of metrics. While one reading has not ended, another would take one more thread. */
class Source {
  readonly name: string
  readonly #read: () => Promise<Metric[]>
  #reading: Promise<Metric[]> | undefined

  constructor(name: string, read: () => Promise<Metric[]>) {
    this.name = name
    this.#read = read
  }

  async read(clock: Pick<Clock, 'sleep'>): Promise<Metric[]> {
    if (this.#reading !== undefined) throw new AgentError('INTERNAL', 'the last reading has not ended')
    const reading = this.#read()
    this.#reading = reading
    const ended = () => {
      this.#reading = undefined
    }
    reading.then(ended, ended)
    return withTimeout(clock, SOURCE_MS, reading, () => {
      return new AgentError('INTERNAL', `no answer within ${SOURCE_MS / 1000} s`)
    })
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

/** The sources, by their names in the log. */
const SOURCES: Readonly<Record<string, (os: MetricsDependencies['os']) => Promise<Metric[]>>> = {
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
