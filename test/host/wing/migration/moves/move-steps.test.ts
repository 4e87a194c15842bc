import { describe, it } from 'vitest'
import { HELD_STEPS } from '../../../../support/wing/moves/faults/move-faults.ts'
import { runSteps } from '../../../../support/wing/moves/faults/run-steps.ts'

/** As long as it is asked for. */
const LIMIT = { timeout: 24 * 60 * 60_000 }

describe('a machine that moves while a party is killed, stopped or cut off before any step', () => {
  it('is run by one host at a time, and by one in the end, and loses nothing', LIMIT, () =>
    runSteps(HELD_STEPS),
  )
})
