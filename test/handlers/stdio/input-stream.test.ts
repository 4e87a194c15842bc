import { describe, expect, it } from 'vitest'
import { neverAborted } from '../../../src/base/abort.ts'
import { InputStream } from '../../../src/handlers/stdio/input-stream.ts'
import { FakeOs } from '../../support/fakes/fake-os.ts'

/** A stream into a pipe that holds four bytes. */
function inputStream() {
  const os = new FakeOs()
  const { parentEnd, childEnd } = os.streams.pipe('child-reads', 4)
  const stream = new InputStream(os.streams, parentEnd)
  return {
    os,
    stream,
    write: (text: string, signal = neverAborted) => stream.write(Buffer.from(text), signal),
    closeChildEnd: () => os.streams.close(childEnd),
    /** What the process reads next; '' is the end. */
    next: async () => {
      await os.streams.readable(childEnd)
      return os.streams.tryRead(childEnd, 4)?.toString()
    },
  }
}

describe('InputStream', () => {
  it('writes everything, however small the pipe', async () => {
    const { write, next } = inputStream()
    const written = write('abcdefghij')
    expect([await next(), await next(), await next()]).toEqual(['abcd', 'efgh', 'ij'])
    await written
  })

  it('writes in the order of the calls', async () => {
    const { write, next } = inputStream()
    const written = Promise.all([write('aaaaaa'), write('bb'), write('cccc')])
    expect([await next(), await next(), await next()].join('')).toBe('aaaaaabbcccc')
    await written
  })

  it('ends after the writes before, and only once', async () => {
    const { stream, write, next } = inputStream()
    const written = write('abcdef')
    const ended = Promise.all([stream.end(), stream.end()])
    expect([await next(), await next(), await next()]).toEqual(['abcd', 'ef', ''])
    await written
    await ended
  })

  it('takes no more after the end', async () => {
    const { stream, write } = inputStream()
    await stream.end()
    await expect(write('x')).rejects.toMatchObject({ code: 'INTERNAL', message: 'Cannot get writer' })
  })

  it('tells when nobody reads any more', async () => {
    const { write, closeChildEnd } = inputStream()
    closeChildEnd()
    await expect(write('x')).rejects.toMatchObject({ code: 'INTERNAL', errno: 'EPIPE' })
  })

  it('gives up a blocked write when the process ends, though somebody holds the pipe', async () => {
    const { stream, write } = inputStream()
    const written = write('abcdef')
    stream.processEnded()
    await expect(written).rejects.toMatchObject({ code: 'INTERNAL', errno: 'EPIPE' })
  })

  it('gives up a blocked write when its caller does, and goes on with the next', async () => {
    const { write, next } = inputStream()
    const caller = new AbortController()
    const leaving = write('abcdefghij', caller.signal)
    const staying = write('xy')
    expect(await next()).toBe('abcd')
    await new Promise(setImmediate)
    caller.abort(new Error('gone'))
    await expect(leaving).rejects.toThrow('gone')
    expect(await next()).toBe('efgh')
    await staying
    expect(await next()).toBe('xy')
  })

  it('never writes what was given up while it waited for its turn', async () => {
    const { write, next } = inputStream()
    const caller = new AbortController()
    const first = write('abcdef')
    const leaving = write('xx', caller.signal)
    caller.abort(new Error('gone'))
    await expect(leaving).rejects.toThrow('gone')
    expect([await next(), await next()]).toEqual(['abcd', 'ef'])
    await first
  })

  it('fails pending writes when it is closed, and frees its descriptor', async () => {
    const { os, stream, write } = inputStream()
    const writes = [write('abcdef'), write('g')]
    stream.close()
    for (const written of writes) await expect(written).rejects.toMatchObject({ errno: 'EPIPE' })
    expect(os.streams.openFds).toHaveLength(1)
  })
})
