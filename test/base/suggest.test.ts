import { describe, expect, it } from 'vitest'
import { didYouMean, editDistance } from '../../src/base/suggest.mjs'

describe('didYouMean', () => {
  it('corrects a misspelling, and lists the choices when nothing is similar', () => {
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
