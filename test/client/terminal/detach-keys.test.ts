import { describe, expect, it } from 'vitest'
import { DETACH_KEYS, Detached, parseKeys, untilKeys } from '../../../src/client/terminal/detach-keys.ts'

async function* each(...pieces: readonly string[]): AsyncGenerator<Buffer> {
  for (const piece of pieces) yield Buffer.from(piece)
}

async function typed(...pieces: readonly string[]): Promise<{ passed: string; detached: boolean }> {
  let passed = ''
  try {
    for await (const piece of untilKeys(each(...pieces), parseKeys(DETACH_KEYS))) passed += piece.toString()
    return { passed, detached: false }
  } catch (error) {
    if (!(error instanceof Detached)) throw error
    return { passed, detached: true }
  }
}

describe('untilKeys', () => {
  it('passes everything before the keys', async () => {
    expect(await typed('ab\x10\x11cd')).toEqual({ passed: 'ab', detached: true })
    expect(await typed('ab\x10', '\x11')).toEqual({ passed: 'ab', detached: true })
    expect(await typed('\x10', '\x10\x11')).toEqual({ passed: '\x10', detached: true })
  })

  it('passes a beginning of the keys that is not meant', async () => {
    expect(await typed('a\x10b', '\x11', 'c\x10')).toEqual({ passed: 'a\x10b\x11c\x10', detached: false })
  })
})

describe('parseKeys', () => {
  it('reads control keys and letters', () => {
    expect([...parseKeys('ctrl-a,d')]).toEqual([1, 100])
    expect([...parseKeys('')]).toEqual([])
    expect(() => parseKeys('ctrl-p,F1')).toThrow('unknown key "F1", want ctrl-p or a letter')
  })
})
