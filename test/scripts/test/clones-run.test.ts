import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { clonesShare, clonesTable, readClonesRun } from '../../../scripts/test/clones-run.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

it('reads how many clones there are to be, and which one dies', () => {
  expect(readClonesRun([])).toEqual({ count: 20, seed: expect.any(Number) })
  expect(readClonesRun(['--count', '8', '--seed', '5'])).toEqual({ count: 8, seed: 5 })
  expect(() => readClonesRun(['--kills', '2'])).toThrow('unknown option --kills: want [--count N] [--seed N]')
  expect(() => readClonesRun(['--count', '1'])).toThrow('--count 1: want a number from 2 to 100')
  expect(clonesShare({})).toEqual({ count: 2, seed: 0, isLong: false })
  expect(clonesShare({ MICROVM_CLONES: '8', MICROVM_CLONES_SEED: '3' })).toEqual({
    ...{ count: 8, seed: 3, isLong: true },
  })
})

it('shows the clones of each form of memory in one row', () => {
  const file = join(temporaryFolder(), 'figures')
  writeFileSync(file, JSON.stringify({ form: 'private', count: 3, seconds: 2, ownMib: [30, 10, 20] }))
  const table = clonesTable(file).map((line) => line.trim().split(/ {2,}/))
  expect(table.slice(2)).toEqual([['private', '3', '2.0', '10.0', '20.0', '30.0']])
})
