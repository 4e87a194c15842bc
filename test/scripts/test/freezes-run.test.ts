import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { freezesShare, freezesTable } from '../../../scripts/test/freezes-run.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

it('reads how many freezes there are to be, and what chooses them', () => {
  expect(freezesShare({ MICROVM_FREEZES: '8', MICROVM_FREEZES_SEED: '3' })).toEqual({
    ...{ count: 8, seed: 3 },
    progressMs: Number.POSITIVE_INFINITY,
  })
})

it('shows the freezes of each kind in one row', () => {
  const file = join(temporaryFolder(), 'figures')
  const row = (kind: string, slowestAnswerMs: number) =>
    `${JSON.stringify({ kind, count: 1, seconds: 2, slowestAnswerMs })}\n`
  writeFileSync(file, row('stop', 30) + row('restore', 20) + row('stop', 10))
  const table = freezesTable(file).map((line) => line.trim().split(/ {2,}/))
  expect(table.slice(2)).toEqual([
    ['restore', '1', '2.0', '20'],
    ['stop', '2', '4.0', '30'],
    ['all', '3'],
  ])
})
