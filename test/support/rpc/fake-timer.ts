import type { StartTimer } from '../../../src/rpc/timer.ts'

/** A timer that fires when the test lets time pass. */
export interface FakeTimer {
  readonly start: StartTimer
  /** Lets this much time pass. */
  advance(ms: number): void
  /** The number of running timers. */
  readonly running: number
}

export function fakeTimer(): FakeTimer {
  const timers = new Set<{ readonly at: number; readonly callback: () => void }>()
  let now = 0
  return {
    start: (ms, callback) => {
      const timer = { at: now + ms, callback }
      timers.add(timer)
      return () => timers.delete(timer)
    },
    advance: (ms) => {
      now += ms
      for (const timer of [...timers].filter(({ at }) => at <= now)) {
        timers.delete(timer)
        timer.callback()
      }
    },
    get running() {
      return timers.size
    },
  }
}
