import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { movesAsked, movesTable, readMovesRun } from '../../../scripts/test/moves-run.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

it('reads how many moves there are to be, and what chooses their faults', () => {
  expect(readMovesRun([], 9)).toEqual({ count: 100, seed: 9 })
  expect(readMovesRun(['--count', '200', '--seed', '5'], 9)).toEqual({ count: 200, seed: 5 })
  expect(() => readMovesRun(['--kills', '2'], 9)).toThrow('--kills')
  expect(movesAsked({ MICROVM_MOVES: '8', MICROVM_MOVES_SEED: '3' })).toEqual({ count: 8, seed: 3 })
  expect(movesAsked({})).toBeUndefined()
})

it('shows the moves of each kind of fault in one row, and of each step', () => {
  const file = join(temporaryFolder(), 'figures')
  const row = (kind: string, step: string, settledMs: number) =>
    `${JSON.stringify({ kind, step, text: '', count: 1, moved: 1, ended: 0, seconds: 2, settledMs })}\n`
  writeFileSync(file, row('none', '', 30) + row('kill source', 'memory', 20) + row('none', '', 10))
  const table = movesTable(file).map((line) => line.trim().split(/ {2,}/))
  expect(table.slice(2, 5)).toEqual([
    ['kill source', '1', '1', '0', '2', '20'],
    ['none', '2', '2', '0', '4', '30'],
    ['all', '3', '3', '0', '6', '30'],
  ])
  expect(table.slice(7)).toEqual([['memory', '1', '1', '0', '2', '20']])
})
