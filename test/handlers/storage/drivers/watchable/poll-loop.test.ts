import { beforeEach, describe, expect, it } from 'vitest'
import { PollLoop } from '../../../../../src/handlers/storage/drivers/watchable/poll-loop.ts'
import { FakeClock } from '../../../../support/fakes/fake-clock.ts'

describe('Rounds', () => {
  let clock: FakeClock
  let rounds: PollLoop
  let begun: number[]

  beforeEach(() => {
    clock = new FakeClock()
    rounds = new PollLoop(clock)
    begun = []
  })

  it('begin every two seconds, however long one takes', async () => {
    rounds.join(workOf(500))
    await pass(2000, 1500, 1500)
    expect(begun).toEqual([2000, 4000, 6000])
  })

  it('leave a second between them when one takes very long', async () => {
    rounds.join(workOf(5000))
    await pass(2000, 999, 1, 1000)
    expect(begun).toEqual([2000, 8000, 14_000])
  })

  it('go on without a member that is done, and end with the last', async () => {
    rounds.join(workOf(0))
    const leave = rounds.join(async () => 'done')
    await pass(2000, 2000)
    expect(begun).toEqual([2000, 4000])
    await leave()
    expect(clock.sleeping).toBe(1)
  })

  it('do not call a member that has left during the round', async () => {
    const left = Promise.withResolvers<void>()
    rounds.join(async () => {
      await leave()
      left.resolve()
      return 'done'
    })
    const leave = rounds.join(workOf(0))
    rounds.join(async () => 'again')
    await pass(2000)
    await left.promise
    expect(begun).toEqual([])
  })

  it('begin anew after they have ended', async () => {
    await rounds.join(workOf(0))()
    await pass(0)
    expect(clock.sleeping).toBe(0)
    rounds.join(workOf(0))
    await pass(2000)
    expect(begun).toEqual([2000])
  })

  /** Work that takes so long, and notes when it is begun. */
  function workOf(ms: number) {
    return async () => {
      // The fake clock begins at 1 s.
      begun.push(clock.monotonicMs() - 1000)
      clock.advance(ms)
      return 'again' as const
    }
  }

  /** Lets time pass step by step, and what is then done be done. */
  async function pass(...steps: readonly number[]): Promise<void> {
    for (const ms of steps) {
      clock.advance(ms)
      await new Promise((resolve) => void setImmediate(resolve))
    }
  }
})
