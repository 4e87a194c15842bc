import { PassThrough, Writable } from 'node:stream'
import { describe, expect, it } from 'vitest'
import { neverAborted } from '../../../src/base/abort.ts'
import { copyOutput, gather, OutputClosed } from '../../../src/client/container/stdio.ts'

const KEY = { containerId: 'c', execId: 'c' }

function reads(...pieces: readonly string[]) {
  const left = [...pieces, '']
  return async () => ({ data: Buffer.from(left.shift() ?? '') })
}

/** A stream whose writes fail with `code`, like a file or pipe of the tool. */
function failing(code: string): Writable {
  const write = (_chunk: unknown, _encoding: unknown, done: (error: Error) => void) =>
    done(Object.assign(new Error(`${code}: write`), { code }))
  return new Writable({ write }).on('error', () => {})
}

describe('copyOutput', () => {
  it('writes everything in order', async () => {
    const seen: string[] = []
    const target = new Writable({
      write: (chunk, _encoding, done) => {
        seen.push(String(chunk))
        done()
      },
    })
    await copyOutput(reads('a', 'b'), KEY, target, neverAborted)
    expect(seen).toEqual(['a', 'b'])
  })

  it('distinguishes a lost reader from other failures', async () => {
    await expect(copyOutput(reads('a'), KEY, failing('EPIPE'), neverAborted)).rejects.toThrow(OutputClosed)
    await expect(copyOutput(reads('a'), KEY, failing('ENOSPC'), neverAborted)).rejects.toThrow(
      'cannot write the output: ENOSPC: write',
    )
  })

  it('reports a lost reader when the stream was destroyed before', async () => {
    const target = failing('EPIPE')
    target.destroy()
    await expect(copyOutput(reads('a'), KEY, target, neverAborted)).rejects.toThrow(OutputClosed)
  })
})

describe('gather', () => {
  it('returns what arrived in between as one piece, and ends with the source', async () => {
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
    // The third write waits in the source, because the second one has filled the pending piece.
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
