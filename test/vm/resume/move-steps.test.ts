import { describe, it } from 'vitest'
import { cannotBoot } from '../../support/vm/boot-guest.ts'
import { type FaultKind, POD_STEPS } from '../../support/wing/moves/faults/move-faults.ts'
import { runSteps } from '../../support/wing/moves/faults/run-steps.ts'

/** As long as it is asked for. */
const LIMIT = { timeout: 24 * 60 * 60_000 }
/** After none of them the guest boots anew. */
const FEW: readonly FaultKind[] = [
  { kind: 'stop', who: 'target' },
  { kind: 'kill', who: 'source' },
  { kind: 'drop', wire: 'source-target' },
  { kind: 'stop', who: 'source holder' },
  { kind: 'kill', who: 'target' },
]

describe.skipIf(cannotBoot() !== undefined)('a pod that moves while a party is lost', () => {
  it('is run by one host at a time, and goes on with its agent, its output and its disk', LIMIT, () =>
    runSteps(POD_STEPS, { few: FEW, isPod: true }),
  )
})
