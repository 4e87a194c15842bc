import { describe, expect, it } from 'vitest'
import { changesBetween } from '../../bench/compare.ts'

describe('the kept figures', () => {
  it('are told from a run by more than noise', () => {
    const figure = (...values: readonly number[]) => ({
      unit: 'ms',
      limit: 2,
      values,
      floors: values.map(() => 10),
    })
    const count = (value: number) => ({ unit: 'us', spread: 0.003, values: [value], floors: [0] })
    const before = { exec: figure(11, 12, 13), life: figure(11, 12, 13), gone: figure(1), count: count(1000) }
    const after = { exec: figure(13, 14, 15), life: figure(14, 15, 16), new: figure(1), count: count(1011) }
    const changed = changesBetween(before, after).filter(({ isChanged }) => isChanged)
    expect(changed.map(({ cells: [name], change }) => ({ name, change }))).toEqual([
      { name: 'life', change: 0.25 },
      { name: 'count', change: expect.closeTo(0.011) },
    ])
  })
})
