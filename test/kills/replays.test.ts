import { describe, expect, it } from 'vitest'
import { allCallers, playCaller } from '../support/kills/callers.ts'
import { Killer } from '../support/kills/killer.ts'
import { AS_LONG_AS_ASKED_MS, randomOf, shareOf, Tally } from '../support/kills/share.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'

const callers = await allCallers(temporaryFolder())
const kills = Math.ceil(shareOf('kills') / (callers.length + 1))

describe.skipIf(kills === 0)(
  'a caller whose agent is killed at random moments notices nothing but time',
  () => {
    it.for(callers)('$name', { timeout: AS_LONG_AS_ASKED_MS }, async (caller, context) => {
      if (caller.unavailable !== undefined) context.skip(caller.unavailable)
      const random = randomOf(caller.name)
      const tally = new Tally(caller.name)
      while (tally.kills < kills) {
        const done = await playCaller(caller, (started) => {
          const killer = new Killer(started, random)
          return () => killer.stop()
        })
        tally.add(done)
      }
      tally.end()
      expect(tally.kills).toBeGreaterThanOrEqual(kills)
    })
  },
)
