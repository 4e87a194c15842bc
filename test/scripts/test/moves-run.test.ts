import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { type MovesFigures, movesAsked, movesTable } from '../../../scripts/test/moves-run.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

it('reads how many moves there are to be, and what chooses their faults', () => {
  const asked = { MICROVM_MOVES: '8', MICROVM_MOVES_SEED: '3' }
  expect(movesAsked(asked)).toEqual({ count: 8, seed: 3, leaseTtlMs: 0 })
  expect(movesAsked({ ...asked, MICROVM_MOVES_LEASE: '5000' })?.leaseTtlMs).toBe(5000)
  expect(movesAsked({ ...asked, MICROVM_MOVES_STEPS: '500' })?.stepsLastMs).toBe(500)
  expect(movesAsked({})).toBeUndefined()
})

it('shows the moves of each kind of fault in one row, and of each step that a fault has met', () => {
  const file = join(temporaryFolder(), 'figures')
  const row = (kind: string, figures: Pick<MovesFigures, 'met' | 'settledMs' | 'step'>) =>
    `${JSON.stringify({ kind, text: '', count: 1, moved: 1, ended: 0, seconds: 2, ...figures })}\n`
  writeFileSync(
    file,
    [
      row('none', { step: 'end', met: 0, settledMs: 30 }),
      row('kill source holder', { step: 'memory', met: 1, settledMs: 20 }),
      row('kill source holder', { step: 'end', met: 0, settledMs: 40 }),
      row('none', { step: 'end', met: 0, settledMs: 10 }),
    ].join(''),
  )
  const table = movesTable(file).map((line) => line.trim().split(/ {2,}/))
  expect(table.slice(2, 6)).toEqual([
    ['kill source holder', '1', '1', '0', '2', '20'],
    ['kill source holder, none there', '1', '1', '0', '2', '40'],
    ['none', '2', '2', '0', '4', '30'],
    ['all', '4', '4', '0', '8', '40'],
  ])
  expect(table.slice(8)).toEqual([['memory', '1', '1', '0', '2', '20']])
})
