import { PassThrough } from 'node:stream'
import { describe, expect, it } from 'vitest'
import { neverAborted } from '../../../src/base/abort.ts'
import { gather } from '../../../src/microvm/run/gather.ts'

describe('gather', () => {
  it('gives what came meanwhile as one piece, and ends with the source', async () => {
    const source = new PassThrough()
    const pieces = gather(source, 1024, neverAborted)
    const first = pieces.next()
    source.write('a')
    expect(String((await first).value)).toBe('a')
    source.write('b')
    source.end('c')
    const rest: string[] = []
    for await (const piece of pieces) rest.push(String(piece))
    expect(rest.join('')).toBe('bc')
  })

  it('stops reading ahead when a piece is full', async () => {
    const source = new PassThrough({ highWaterMark: 1 })
    const pieces = gather(source, 4, neverAborted)
    const first = pieces.next()
    source.write('12345678')
    await first
    source.write('abcdefgh')
    source.write('ijklmnop')
    // The third write waits in the source: the second filled the piece that nobody has taken yet.
    expect(source.isPaused()).toBe(true)
    expect(String((await pieces.next()).value)).toBe('abcdefgh')
    expect(String((await pieces.next()).value)).toBe('ijklmnop')
    await pieces.return()
  })

  it('ends when the signal fires', async () => {
    const abort = new AbortController()
    const next = gather(new PassThrough(), 4, abort.signal).next()
    abort.abort()
    expect((await next).done).toBe(true)
  })

  it('ends at once when the signal fired before', async () => {
    const next = gather(new PassThrough(), 4, AbortSignal.abort()).next()
    expect((await next).done).toBe(true)
  })
})
