import { abortable } from '../base/abort.ts'
import type { Native } from './native.ts'

/** The clocks of the machine, and timers. */
export interface Clock {
  /** CLOCK_BOOTTIME in nanoseconds, the clock of exit records. */
  boottimeNs(): bigint
  /** Milliseconds of a monotonic clock, for measuring. */
  monotonicMs(): number
  /** Resolves after `ms`. Rejects with the reason of `signal` when that fires first. */
  sleep(ms: number, signal?: AbortSignal): Promise<void>
  /** Calls `expired` once after `ms`, unless the returned function is called first. */
  startTimer(ms: number, expired: () => void): () => void
}

/** The clocks of this machine. */
export function linuxClock(native: Native): Clock {
  return {
    boottimeNs: () => native.boottimeNs(),
    // Not `performance.now()`, for which Node loads a dozen modules.
    monotonicMs: () => Number(process.hrtime.bigint()) / 1e6,
    sleep,
    startTimer,
  }
}

function startTimer(ms: number, expired: () => void): () => void {
  const timer = setTimeout(expired, ms)
  return () => clearTimeout(timer)
}

async function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  const slept = Promise.withResolvers<void>()
  const stop = startTimer(ms, slept.resolve)
  try {
    await (signal === undefined ? slept.promise : abortable(slept.promise, signal))
  } finally {
    stop()
  }
}
