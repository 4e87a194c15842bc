import { raceSignal } from '../base/signals.ts'
import type { Native } from './native.ts'
import type { Clock } from './os.ts'

/** The clocks of this machine. */
export function linuxClock(native: Native): Clock {
  return {
    boottimeNs: () => native.boottimeNs(),
    // Not `performance.now()`, for which Node loads a dozen modules.
    monotonicMs: () => Number(process.hrtime.bigint()) / 1e6,
    sleep,
  }
}

async function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  const slept = Promise.withResolvers<void>()
  const timer = setTimeout(slept.resolve, ms)
  try {
    await (signal === undefined ? slept.promise : raceSignal(slept.promise, signal))
  } finally {
    clearTimeout(timer)
  }
}
