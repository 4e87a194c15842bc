import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { allCallers } from '../support/kills/callers.ts'
import { AS_LONG_AS_ASKED_MS, randomOf, shareOf, Tally } from '../support/kills/share.ts'
import { type Death, playDeaths, stepsOf } from '../support/kills/steps.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'

/** In a third of the replays the next agent dies too, at one of its first steps. */
const SECOND_STEPS = 60

const share = shareOf('steps')
const callers = await allCallers(temporaryFolder())
const random = randomOf('steps')

/** So many of `all`, at random and in their order. */
function some<T>(all: readonly T[], count: number): readonly T[] {
  const chosen = new Set(
    all
      .map((one) => ({ one, at: random() }))
      .toSorted((a, b) => a.at - b.at)
      .slice(0, count)
      .map(({ one }) => one),
  )
  return all.filter((one) => chosen.has(one))
}

/** A small share has few callers: to list the steps of one takes a replay. */
const chosen = some(callers, Math.max(1, Math.ceil(share / 10)))

describe.skipIf(share === 0)('a caller notices nothing but time when its agent dies', () => {
  it.for(chosen)(
    'before and after each write of state and each acknowledgement: $name',
    { timeout: AS_LONG_AS_ASKED_MS },
    async (caller, context) => {
      if (caller.unavailable !== undefined) context.skip(caller.unavailable)
      const folder = temporaryFolder()
      const steps = await stepsOf(caller, join(folder, 'steps'))
      expect(steps.length).toBeGreaterThan(20)
      const deaths = steps.flatMap((_, index): Death[] => [
        { number: index + 1, side: 'before' },
        { number: index + 1, side: 'after' },
      ])
      const tally = new Tally(`${caller.name}, at ${deaths.length} steps`)
      const failures: string[] = []
      for (const [index, death] of some(deaths, Math.ceil(share / chosen.length)).entries()) {
        const isSecond = random() < 1 / 3
        const second: Death = {
          number: Math.ceil(random() * SECOND_STEPS),
          side: random() < 0.5 ? 'before' : 'after',
        }
        try {
          const died = await playDeaths(
            caller,
            isSecond ? [death, second] : [death],
            join(folder, `${index}`),
          )
          tally.add(died.length)
        } catch (error) {
          const text = error instanceof Error ? error.message : String(error)
          failures.push(text)
          tally.failed(text)
        }
      }
      tally.end()
      expect(failures).toEqual([])
    },
  )
})
