import { appendFileSync, existsSync, writeSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { MOVES, movesAsked } from '../../../../../scripts/test/moves-run.ts'
import { randomFrom } from '../../../../support/kills/random.ts'
import { chooseFault, type Fault } from '../../../../support/wing/moves/faults/move-faults.ts'
import { runMoves } from '../../../../support/wing/moves/faults/run-moves.ts'

const asked = movesAsked(process.env)
const { [MOVES.figures]: figuresFile, [MOVES.stop]: stopFile } = process.env

const HOUR_MS = 3_600_000
const AT_ONCE = { delayMs: 0, lastMs: 0 } as const
/** What `npm test` takes. */
const FEW: readonly Fault[] = [
  { kind: 'none', step: 'end', ...AT_ONCE },
  { kind: 'none', step: 'end', ...AT_ONCE },
  { kind: 'kill', who: 'source', step: 'memory', ...AT_ONCE },
  { kind: 'kill', who: 'target', step: 'switchover', ...AT_ONCE },
  { kind: 'kill', who: 'source', step: 'switchover', ...AT_ONCE },
  { kind: 'drop', wire: 'source-controllers', step: 'memory', delayMs: 0, lastMs: 2000 },
  { kind: 'clock', who: 'source', jumpMs: -HOUR_MS, step: 'handover', ...AT_ONCE },
  { kind: 'clock', who: 'target', jumpMs: HOUR_MS, step: 'handover', ...AT_ONCE },
]

function* chosen({ count, seed }: { readonly count: number; readonly seed: number }): Generator<Fault> {
  for (let number = 0; number < count; number++) yield chooseFault(randomFrom(seed + number))
}

const AS_LONG_AS_ASKED_MS = 24 * 60 * 60_000

describe('a machine that moves while something fails', () => {
  it('is run by one host at a time, and by one in the end, and loses nothing', {
    timeout: AS_LONG_AS_ASKED_MS,
  }, async () => {
    const { count, failures } = await runMoves(asked === undefined ? FEW : chosen(asked), {
      leaseTtlMs: asked?.leaseTtlMs ?? 0,
      isOver: () => stopFile !== undefined && existsSync(stopFile),
      named: (number) => (asked === undefined ? '' : `, --seed ${asked.seed + number - 1} --count 1`),
      onFigure: (figure, number) => {
        if (figuresFile !== undefined) appendFileSync(figuresFile, `${JSON.stringify(figure)}\n`)
        if (asked !== undefined)
          writeSync(1, `${number} of ${asked.count}: ${figure.text}: ${figure.settledMs.toFixed(0)} ms\n`)
      },
    })
    expect(failures).toEqual([])
    expect(count).toBeGreaterThan(0)
  })
})
