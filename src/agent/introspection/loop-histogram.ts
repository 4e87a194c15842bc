import { AgentError } from '../../base/errors.ts'
import type {
  GetLoopHistogramRequest,
  GetLoopHistogramResponse,
} from '../../gen/microvm/agent/v1/introspection.ts'
import type { Clock } from '../../os/clock.ts'
import { durationOf } from './request-fields.ts'

/** The period of the timer whose lateness is measured. */
const RESOLUTION_MS = 10

const MOST_AT_ONCE = 8

/** Measures the lateness of the event loop only during a call, so that an idle agent has no timer. */
export class LoopHistogram {
  readonly #clock: Pick<Clock, 'sleep'>
  #running = 0

  constructor(clock: Pick<Clock, 'sleep'>) {
    this.#clock = clock
  }

  /** Throws INVALID_ARGUMENT for too long a time, RESOURCE_EXHAUSTED for too many calls. */
  async measure(
    { durationMs }: GetLoopHistogramRequest,
    signal: AbortSignal,
  ): Promise<GetLoopHistogramResponse> {
    const ms = durationOf(durationMs)
    if (this.#running >= MOST_AT_ONCE) {
      throw new AgentError('RESOURCE_EXHAUSTED', `measurements: ${MOST_AT_ONCE} are under way, want no more`)
    }
    const { monitorEventLoopDelay, performance } = await import('node:perf_hooks')
    const histogram = monitorEventLoopDelay({ resolution: RESOLUTION_MS })
    const before = performance.eventLoopUtilization()
    this.#running += 1
    histogram.enable()
    try {
      await this.#clock.sleep(ms, signal)
    } finally {
      histogram.disable()
      this.#running -= 1
    }
    const percentile = (percent: number) => lateUs(histogram.percentile(percent))
    const { heapUsed, rss } = process.memoryUsage()
    return {
      samples: BigInt(histogram.count),
      minUs: lateUs(histogram.count === 0 ? 0 : histogram.min),
      meanUs: lateUs(histogram.count === 0 ? 0 : histogram.mean),
      p50Us: percentile(50),
      p90Us: percentile(90),
      p99Us: percentile(99),
      maxUs: lateUs(histogram.count === 0 ? 0 : histogram.max),
      utilizationPercent: performance.eventLoopUtilization(before).utilization * 100,
      heapUsedBytes: BigInt(heapUsed),
      residentBytes: BigInt(rss),
    }
  }
}

/** The lateness of the timer: the histogram holds the time between two expirations. */
function lateUs(nanoseconds: number): bigint {
  return BigInt(Math.max(0, Math.round(nanoseconds / 1000) - RESOLUTION_MS * 1000))
}
