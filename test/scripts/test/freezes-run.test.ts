import { expect, it } from 'vitest'
import { DEFAULT_COUNT, freezesShare, readFreezesRun } from '../../../scripts/test/freezes-run.ts'

it('reads how many freezes there are to be, and what chooses them', () => {
  expect(readFreezesRun([], 9)).toEqual({ count: DEFAULT_COUNT, seed: 9 })
  expect(readFreezesRun(['--count', '200', '--seed', '5'], 9)).toEqual({ count: 200, seed: 5 })
  expect(() => readFreezesRun(['--kills', '2'], 9)).toThrow('--kills')
  expect(freezesShare({ MICROVM_FREEZES: '8', MICROVM_FREEZES_SEED: '3' })).toEqual({
    ...{ count: 8, seed: 3 },
    progressMs: Number.POSITIVE_INFINITY,
  })
})
