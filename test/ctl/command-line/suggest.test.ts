import { describe, expect, it } from 'vitest'
import { UsageError } from '../../../src/ctl/command.ts'
import { parseDuration } from '../../../src/ctl/command-line/duration.ts'
import { didYouMean, editDistance } from '../../../src/ctl/command-line/suggest.ts'

describe('didYouMean', () => {
  it('finds a misspelling, and says what else there is when there is none', () => {
    expect(didYouMean('containr_id', ['container_id', 'exec_id'], 'want x')).toBe(
      ', did you mean "container_id"?',
    )
    expect(didYouMean('Container-Id', ['container_id'], '')).toBe(', did you mean "container_id"?')
    expect(didYouMean('zebra', ['container_id', 'exec_id'], 'want x')).toBe(', want x')
  })
})

describe('editDistance', () => {
  it('counts an exchange of neighbours once', () => {
    expect(editDistance('psx', 'ps')).toBe(1)
    expect(editDistance('sp', 'ps')).toBe(1)
    expect(editDistance('kitten', 'sitting')).toBe(3)
  })
})

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
