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

export interface MetricsContext {
  readonly os: Pick<Os, 'clock' | 'files' | 'mounts' | 'volumes'>
  readonly log: Logger
  readonly figures: OwnFigures
}

/** How long one source may take: a file system whose server hangs never answers. */
const SOURCE_MS = 2000

/**
 * Creates the call GetMetrics. A source that cannot be read in time is left out and logged. Each source is read and printed
 * in a turn of the event loop of its own, so that other calls are served in between.
 */
export function createMetrics({
  os,
  log,
  figures,
}: MetricsContext): (signal: AbortSignal) => Promise<string> {
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

/** A reading that hangs holds a thread, so no further reading begins before it ends. */
class Source {
  readonly name: string
  readonly #read: () => Promise<Metric[]>
  #reading: Promise<Metric[]> | undefined

  constructor(name: string, read: () => Promise<Metric[]>) {
    this.name = name
    this.#read = read
  }

  async read(clock: Pick<Clock, 'startTimer'>): Promise<Metric[]> {
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
 * Callers that arrive during a run of `task` share the next run: the metrics take milliseconds of CPU time, and hundreds of
 * callers would hold up all other calls.
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

const SOURCES: Readonly<Record<string, (os: MetricsContext['os']) => Promise<Metric[]>>> = {
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
