import { describe, expect, it } from 'vitest'
import { NOTHING, oneEntry, slowestLines, sum, summaryLine } from '../../../scripts/test/counts.ts'

describe('summaryLine', () => {
  it('counts passed and failed tests', () => {
    expect(summaryLine(sum([oneEntry(true), oneEntry(false), oneEntry(true)]))).toBe('2 passed, 1 failed')
  })

  it('counts skipped tests only when there are any', () => {
    const skipped = [{ name: 'a test', reason: 'no KVM' }]
    expect(summaryLine(sum([oneEntry(true), { ...NOTHING, skipped }]))).toBe('1 passed, 0 failed, 1 skipped')
  })
})

describe('slowestLines', () => {
  it('lists the given number of files, the slowest first', () => {
    const files = [
      { path: 'test/a.test.ts', seconds: 1.25 },
      { path: 'test/b.test.ts', seconds: 100 },
      { path: 'test/c.test.ts', seconds: 0.5 },
    ]
    expect(slowestLines(files, 2)).toEqual([
      'slowest files:',
      '  100.0 s test/b.test.ts',
      '    1.3 s test/a.test.ts',
    ])
  })

  it('is empty when no file ran', () => {
    expect(slowestLines([], 10)).toEqual([])
  })
})
