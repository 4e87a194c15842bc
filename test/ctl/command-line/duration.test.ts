import { describe, expect, it } from 'vitest'
import { UsageError } from '../../../src/ctl/command.ts'
import { parseDuration } from '../../../src/ctl/command-line/duration.ts'

describe('parseDuration', () => {
  it.each([
    ['500ms', 500],
    ['5s', 5000],
    ['1m30s', 90_000],
    ['2', 2000],
    ['0.5s', 500],
  ])('reads %s', (text, ms) => expect(parseDuration('--timeout', text)).toBe(ms))

  it.each(['', 'x', '5 s', '5x', '-1s', '5s5'])('refuses %j', (text) => {
    expect(() => parseDuration('--timeout', text)).toThrow(UsageError)
  })
})
