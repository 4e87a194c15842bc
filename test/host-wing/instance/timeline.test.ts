import { afterEach, beforeEach, expect, it, vi } from 'vitest'
import { Timeline } from '../../../src/host/instance/record/timeline.ts'

beforeEach(() => void vi.useFakeTimers({ toFake: ['Date', 'performance'] }))
afterEach(() => void vi.useRealTimers())

/** What happens, after so many milliseconds each. */
function timelineOf(kind: Timeline['kind'], events: readonly (readonly [name: string, afterMs: number])[]) {
  const timeline = new Timeline(kind)
  for (const [name, afterMs] of events) {
    vi.advanceTimersByTime(afterMs)
    timeline.event(name)
  }
  return timeline
}

it('a guest that runs between has stood still for the sum, as if at the end of it', () => {
  const begunMs = Date.now()
  const timeline = timelineOf('move', [
    ['STOP', 100],
    ['RESUME', 20],
    ['STOP', 1000],
    ['STOP', 5],
  ])
  expect(timeline.since).toEqual({ stoppedMs: begunMs + 1100, detachedMs: begunMs + 1100 })
  expect(timeline.operation()).toMatchObject({ stoppedUs: 25_000n, waitingUs: 25_000n })
  vi.advanceTimersByTime(5)
  timeline.event('RESUME')
  vi.advanceTimersByTime(50)
  expect(timeline.operation()).toMatchObject({ stoppedUs: 30_000n, waitingUs: 30_000n })
})

it('callers wait from the detachment on, until they are answered', () => {
  const timeline = timelineOf('snapshot', [])
  timeline.begin('detach')
  for (const [name, afterMs] of [
    ['STOP', 10],
    ['RESUME', 20],
  ] as const) {
    vi.advanceTimersByTime(afterMs)
    timeline.event(name)
  }
  vi.advanceTimersByTime(5)
  timeline.answered()
  vi.advanceTimersByTime(100)
  expect(timeline.operation()).toMatchObject({ stoppedUs: 20_000n, waitingUs: 35_000n })
})
