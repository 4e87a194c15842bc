import { describe, expect, it } from 'vitest'
import { type Clock, linuxClock } from '../../src/os/clock.ts'
import { FakeClock } from '../support/fakes/fake-clock.ts'
import { realNative } from '../support/os/real-native.ts'

interface Implementation {
  readonly clock: Clock
  pass(ms: number): void
}

async function onLinux(): Promise<Implementation> {
  return { clock: linuxClock(await realNative()), pass: () => {} }
}

async function fake(): Promise<Implementation> {
  const clock = new FakeClock()
  return { clock, pass: (ms) => clock.advance(ms) }
}

describe.each([
  ['linuxClock', onLinux],
  ['FakeClock', fake],
])('%s', (_name, build) => {
  it('sleeps while both of its times advance', async () => {
    const { clock, pass } = await build()
    const before = [clock.boottimeNs(), clock.monotonicMs()] as const
    const slept = clock.sleep(20)
    pass(20)
    await slept
    // A timer of Node may end up to a millisecond early.
    expect(clock.boottimeNs() - before[0]).toBeGreaterThanOrEqual(19_000_000n)
    expect(clock.monotonicMs() - before[1]).toBeGreaterThanOrEqual(19)
  })

  it('ends a sleep with the reason of its signal, also of one that fired before', async () => {
    const { clock } = await build()
    const stop = new AbortController()
    const slept = expect(clock.sleep(100_000, stop.signal)).rejects.toThrow('enough')
    stop.abort(new Error('enough'))
    await slept
    await expect(clock.sleep(100_000, stop.signal)).rejects.toThrow('enough')
  })

  it('calls timers in the order of their ends, once, and none that was stopped', async () => {
    const { clock, pass } = await build()
    const called: string[] = []
    const stop = clock.startTimer(5, () => called.push('stopped'))
    clock.startTimer(30, () => called.push('late'))
    clock.startTimer(10, () => called.push('early'))
    stop()
    for (const ms of [10, 20]) pass(ms)
    await expect.poll(() => called).toEqual(['early', 'late'])
    stop()
  })
})
