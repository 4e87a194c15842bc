import { appendFileSync, existsSync, writeSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { MOVES, movesAsked } from '../../../../../scripts/test/moves-run.ts'
import {
  HELD_STEPS,
  hitsDaemon,
  STEP_FAULTS,
  type StepFault,
} from '../../../../support/wing/moves/faults/move-faults.ts'
import { runMoves } from '../../../../support/wing/moves/faults/run-moves.ts'

const { [MOVES.figures]: figuresFile, [MOVES.stop]: stopFile } = process.env
const isStopped = () => stopFile !== undefined && existsSync(stopFile)
const lastMs = movesAsked(process.env)?.stepsLastMs

/** How long a fault lasts in `npm test`, which takes one of each step, in turn. Deaths of daemons are those of move-deaths.test.ts. */
const SHORT_MS = 500
const OTHERS = STEP_FAULTS.filter((fault) => !hitsDaemon(fault))

const all: readonly StepFault[] = HELD_STEPS.flatMap((before, row) => {
  const present = row % OTHERS.length
  const kinds = lastMs === undefined ? OTHERS.slice(present, present + 1) : STEP_FAULTS
  return kinds.map((kind) => ({ ...kind, before, lastMs: lastMs ?? SHORT_MS }))
})

const AS_LONG_AS_ASKED_MS = 24 * 60 * 60_000

describe('a machine that moves while a party is killed, stopped or cut off before any step', () => {
  it('is run by one host at a time, and by one in the end, and loses nothing', {
    timeout: AS_LONG_AS_ASKED_MS,
  }, async () => {
    const { count, failures } = await runMoves(all, {
      isOver: isStopped,
      onFigure: (figure, number) => {
        if (figuresFile !== undefined) appendFileSync(figuresFile, `${JSON.stringify(figure)}\n`)
        if (lastMs !== undefined)
          writeSync(1, `${number} of ${all.length}: ${figure.text}: ${figure.seconds.toFixed(1)} s\n`)
      },
    })
    expect(failures).toEqual([])
    if (!isStopped()) expect(count).toBe(all.length)
  })
})
