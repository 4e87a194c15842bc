import { describe, expect, it } from 'vitest'
import { allCallers } from '../support/kills/callers.ts'
import { AS_LONG_AS_ASKED_MS, randomOf, shareOf, Tally } from '../support/kills/share.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'
import { replayWithDeaths } from './steps.ts'

const MOST_IN_A_REPLAY = 60
const MOST_FAILURES = 20
/** The steps of a small caller, before and after; a small share is spread over them. */
const STEPS = 150

const share = shareOf('steps')
const callers = await allCallers(temporaryFolder())
const random = randomOf('steps')

function some<T>(all: readonly T[], count: number): readonly T[] {
  const inAnyOrder = all.map((one) => ({ one, at: random() })).toSorted((a, b) => a.at - b.at)
  return inAnyOrder.slice(0, count).map(({ one }) => one)
}

/** A small share has few callers: each takes a replay or two. */
const chosen = some(callers, Math.max(1, Math.ceil(share / 30)))
const ofEach = Math.ceil(share / chosen.length)

describe.skipIf(share === 0)('a caller notices nothing but time when its agent dies', () => {
  it.concurrent.for(chosen)(
    'before and after each write of state and each acknowledgement: $name',
    { timeout: AS_LONG_AS_ASKED_MS },
    async (caller, context) => {
      if (caller.unavailable !== undefined) context.skip(caller.unavailable)
      const tally = new Tally(caller.name)
      const chance = Math.min(1, ofEach / STEPS)
      const random = randomOf(caller.name)
      const failures: string[] = []
      const isWanted = () => tally.kills < ofEach && failures.length < MOST_FAILURES
      /** Replays until an agent has died at every step. Returns whether any agent died. */
      const dieAtEachStep = async (): Promise<boolean> => {
        const folder = temporaryFolder()
        const seed = Math.floor(random() * 2 ** 32)
        const before = tally.kills
        while (isWanted()) {
          const most = Math.min(MOST_IN_A_REPLAY, ofEach - tally.kills)
          try {
            const died = await replayWithDeaths(caller, { most, chance, seed }, folder)
            tally.add(died.length)
            if (died.length === 0) break
          } catch (error) {
            const text = error instanceof Error ? error.message : String(error)
            failures.push(text)
            tally.failed(text)
          }
        }
        return tally.kills > before
      }
      // With a large share, agents die at a step more than once, because concurrent work differs each time.
      while (isWanted() && (await dieAtEachStep()));
      tally.end()
      expect(failures).toEqual([])
      expect(tally.kills).toBeGreaterThan(0)
    },
  )
})
