import { beforeEach, describe, expect, it } from 'vitest'
import { PollLoop } from '../../../../src/handlers/storage/drivers/watchable/poll-loop.ts'
import { FakeClock } from '../../../support/fakes/fake-clock.ts'

describe('PollLoop', () => {
  let clock: FakeClock
  let pollLoop: PollLoop
  let begun: number[]

  beforeEach(() => {
    clock = new FakeClock()
    pollLoop = new PollLoop(clock)
    begun = []
  })

  it('begins a round every two seconds, however long one takes', async () => {
    pollLoop.add(workOf(500))
    await pass(2000, 1500, 1500)
    expect(begun).toEqual([2000, 4000, 6000])
  })

  it('pauses for a second after a very long round', async () => {
    pollLoop.add(workOf(5000))
    await pass(2000, 999, 1, 1000)
    expect(begun).toEqual([2000, 8000, 14_000])
  })

  it('continues without a task that is done, and stops with the last', async () => {
    pollLoop.add(workOf(0))
    const leave = pollLoop.add(async () => 'done')
    await pass(2000, 2000)
    expect(begun).toEqual([2000, 4000])
    await leave()
    expect(clock.sleeping).toBe(1)
  })

  it('does not call a task that was removed during the round', async () => {
    const left = Promise.withResolvers<void>()
    pollLoop.add(async () => {
      await leave()
      left.resolve()
      return 'done'
    })
    const leave = pollLoop.add(workOf(0))
    pollLoop.add(async () => 'again')
    await pass(2000)
    await left.promise
    expect(begun).toEqual([])
  })

  it('starts again after it has stopped', async () => {
    await pollLoop.add(workOf(0))()
    await pass(0)
    expect(clock.sleeping).toBe(0)
    pollLoop.add(workOf(0))
    await pass(2000)
    expect(begun).toEqual([2000])
  })

  function workOf(ms: number) {
    return async () => {
      begun.push(clock.monotonicMs() - 1000)
      clock.advance(ms)
      return 'again' as const
    }
  }

  /** Advances the clock step by step, and runs the tasks after each step. */
  async function pass(...steps: readonly number[]): Promise<void> {
    for (const ms of steps) {
      clock.advance(ms)
      await new Promise((resolve) => void setImmediate(resolve))
    }
  }
})
