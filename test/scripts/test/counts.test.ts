import { describe, expect, it } from 'vitest'
import { NOTHING, oneEntry, sum, summaryLine } from '../../../scripts/test/counts.ts'

describe('summaryLine', () => {
  it('names what passed and what failed', () => {
    expect(summaryLine(sum([oneEntry(true), oneEntry(false), oneEntry(true)]))).toBe('2 passed, 1 failed')
  })

  it('names skipped tests only when there are any', () => {
    const skipped = [{ name: 'a test', reason: 'no KVM' }]
    expect(summaryLine(sum([oneEntry(true), { ...NOTHING, skipped }]))).toBe('1 passed, 0 failed, 1 skipped')
  })
})
