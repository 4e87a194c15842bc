import { describe, expect, it } from 'vitest'
import { countCpus } from '../../../src/handlers/guest/online-cpus.ts'

describe('countCpus', () => {
  it.each([
    ['', 0],
    ['\n', 0],
    ['0\n', 1],
    ['0-3', 4],
    ['0,2', 2],
    ['0-1,4-7,9', 7],
    ['10-11', 2],
  ])('counts %j', (list, count) => {
    expect(countCpus(list)).toBe(count)
  })
})
