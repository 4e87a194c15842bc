import { appendFileSync, existsSync, writeSync } from 'node:fs'
import { expect } from 'vitest'
import { MOVES, movesAsked } from '../../../../../scripts/test/moves-run.ts'
import type { FleetOptions } from '../fleet.ts'
import { type FaultKind, hitsDaemon, STEP_FAULTS, type StepFault } from './move-faults.ts'
import { runMoves } from './run-moves.ts'
import type { HeldStep } from './step-gate.ts'

const { [MOVES.figures]: figuresFile, [MOVES.stop]: stopFile } = process.env
const { leaseTtlMs = 0, stepsLastMs } = movesAsked(process.env) ?? {}

/** How long a fault lasts in `npm test`, which takes one of each step, in turn. Deaths of daemons are those of move-deaths.test.ts. */
const SHORT_MS = 500
const OTHERS = STEP_FAULTS.filter((fault) => !hitsDaemon(fault))

/** Moves with each fault before each step that `npm run moves -- --steps` asks for, or one for each step, of `few`. */
export async function runSteps(
  steps: readonly HeldStep[],
  { few = OTHERS, ...options }: Pick<FleetOptions, 'isPod'> & { readonly few?: readonly FaultKind[] } = {},
): Promise<void> {
  const all: readonly StepFault[] = steps.flatMap((before, row) => {
    const present = row % few.length
    const kinds = stepsLastMs === undefined ? few.slice(present, present + 1) : STEP_FAULTS
    return kinds.map((kind) => ({ ...kind, before, lastMs: stepsLastMs ?? SHORT_MS }))
  })
  const isStopped = () => stopFile !== undefined && existsSync(stopFile)
  const { count, failures } = await runMoves(all, {
    ...{ ...options, leaseTtlMs, isOver: isStopped },
    onFigure: (figure, number) => {
      if (figuresFile !== undefined) appendFileSync(figuresFile, `${JSON.stringify(figure)}\n`)
      if (stepsLastMs !== undefined)
        writeSync(1, `${number} of ${all.length}: ${figure.text}: ${figure.seconds.toFixed(1)} s\n`)
    },
  })
  expect(failures).toEqual([])
  if (!isStopped()) expect(count).toBe(all.length)
}
