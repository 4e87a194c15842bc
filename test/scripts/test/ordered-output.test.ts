import { beforeEach, describe, expect, it } from 'vitest'
import { type OutputPart, orderedOutput } from '../../../scripts/test/ordered-output.ts'

describe('orderedOutput', () => {
  let written: string
  let parts: readonly OutputPart[]
  beforeEach(() => {
    written = ''
    parts = orderedOutput(3, (text) => {
      written += text
    })
  })

  it('writes the first part at once and holds the others back', () => {
    parts[1]?.write('b')
    parts[0]?.write('a')
    parts[0]?.write('a')
    expect(written).toBe('aa')
  })

  it('writes held output once the earlier parts have ended, and the rest at once', () => {
    parts[2]?.write('c')
    parts[1]?.write('b')
    parts[1]?.end()
    expect(written).toBe('')
    parts[0]?.end()
    expect(written).toBe('bc')
    parts[2]?.write('c')
    expect(written).toBe('bcc')
  })
})
