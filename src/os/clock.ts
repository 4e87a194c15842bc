import { abortable } from '../base/abort.ts'
import type { Native } from './native.ts'

export interface Clock {
  /** CLOCK_BOOTTIME in nanoseconds, the clock of exit records. */
  boottimeNs(): bigint
  monotonicMs(): number
  /** Rejects with the reason of `signal` when it fires first. */
  sleep(ms: number, signal?: AbortSignal): Promise<void>
  /** Calls `expired` once after `ms`, unless the returned function is called first. */
  startTimer(ms: number, expired: () => void): () => void
}

export function linuxClock(native: Native): Clock {
  return {
    boottimeNs: () => native.boottimeNs(),
    // Not `performance.now()`, because Node loads a dozen modules for it.
    monotonicMs: () => Number(process.hrtime.bigint()) / 1e6,
    sleep,
    startTimer,
  }
}

export function startTimer(ms: number, expired: () => void): () => void {
  const timer = setTimeout(expired, ms)
  return () => clearTimeout(timer)
}

export async function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  const slept = Promise.withResolvers<void>()
  const stop = startTimer(ms, slept.resolve)
  try {
    await (signal === undefined ? slept.promise : abortable(slept.promise, signal))
  } finally {
    stop()
  }
}
