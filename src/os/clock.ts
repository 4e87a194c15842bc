import { abortable } from '../base/abort.ts'
import type { Native } from './native.ts'

export interface Clock {
  /** CLOCK_BOOTTIME in nanoseconds: the clock of exit records. */
  boottimeNs(): bigint
  /** Milliseconds of a monotonic clock, for measuring. */
  monotonicMs(): number
  sleep(ms: number, signal?: AbortSignal): Promise<void>
  /** Calls back once after `ms`, unless the function that it returns is called first. */
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
