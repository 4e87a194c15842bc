import { describe, expect, it } from 'vitest'
import { neverAborted } from '../../../src/base/abort.ts'
import { InputStream } from '../../../src/handlers/stdio/input-stream.ts'
import { StoredDescriptors } from '../../../src/handlers/stdio/stored-descriptors.ts'
import { FakeOs } from '../../support/fakes/fake-os.ts'
import { callOf } from '../../support/handlers/call.ts'

/** Where the data of a stored request begins. */
const OFFSET = 50

function inputStream({ isTerminal = false } = {}) {
  const os = new FakeOs()
  const { parentEnd, childEnd } = os.streams.pipe('child-reads', 4)
  const stored = new StoredDescriptors(os.descriptors, 'p1')
  stored.put('stdin', parentEnd)
  const stream = new InputStream(os.streams, { fd: parentEnd, isTerminal, stored })
  return {
    os,
    stream,
    write: (text: string, signal = neverAborted) => stream.write(Buffer.from(text), callOf(signal)),
    writeStored: (text: string, { signal = neverAborted, movedBytes = 0 } = {}) => {
      const fd = os.streams.memoryFile('frame')
      os.streams.writeAt(fd, OFFSET, Buffer.from(text))
      if (movedBytes > 0) os.streams.setPosition(fd, OFFSET + movedBytes)
      const read = () => os.streams.readAt(fd, OFFSET, text.length)
      return stream.write({ length: text.length, place: { fd, offset: OFFSET }, read }, callOf(signal, 7n))
    },
    closeChildEnd: () => os.streams.close(childEnd),
    next: async () => {
      await os.streams.readable(childEnd)
      return os.streams.tryRead(childEnd, 4)?.toString()
    },
  }
}

describe('InputStream', () => {
  it('writes all bytes through a small pipe', async () => {
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

  it('ends once, after the earlier writes', async () => {
    const { stream, write, next } = inputStream()
    const written = write('abcdef')
    const ended = Promise.all([stream.end(), stream.end()])
    expect([await next(), await next(), await next()]).toEqual(['abcd', 'ef', ''])
    await written
    await ended
  })

  it('refuses writes after the end', async () => {
    const { stream, write } = inputStream()
    await stream.end()
    await expect(write('x')).rejects.toMatchObject({ code: 'INTERNAL', message: 'Cannot get writer' })
  })

  it('fails with EPIPE when the read end is closed', async () => {
    const { write, closeChildEnd } = inputStream()
    closeChildEnd()
    await expect(write('x')).rejects.toMatchObject({ code: 'INTERNAL', errno: 'EPIPE' })
  })

  it('fails a blocked write when the process ends, although the read end is still open', async () => {
    const { stream, write } = inputStream()
    const written = write('abcdef')
    stream.processEnded()
    await expect(written).rejects.toMatchObject({ code: 'INTERNAL', errno: 'EPIPE' })
  })

  it('rejects a blocked write when its signal is aborted, then runs the next one', async () => {
    const { write, next } = inputStream()
    const caller = new AbortController()
    const aborted = write('abcdefghij', caller.signal)
    const following = write('xy')
    expect(await next()).toBe('abcd')
    await new Promise(setImmediate)
    caller.abort(new Error('gone'))
    await expect(aborted).rejects.toThrow('gone')
    expect(await next()).toBe('efgh')
    await following
    expect(await next()).toBe('xy')
  })

  it('does not write a queued write that is aborted', async () => {
    const { write, next } = inputStream()
    const caller = new AbortController()
    const first = write('abcdef')
    const aborted = write('xx', caller.signal)
    caller.abort(new Error('gone'))
    await expect(aborted).rejects.toThrow('gone')
    expect([await next(), await next()]).toEqual(['abcd', 'ef'])
    await first
  })

  describe('data in a file', () => {
    it('is moved in the order of the calls, and leaves no record', async () => {
      const { stream, write, writeStored, next } = inputStream()
      const written = Promise.all([write('aa'), writeStored('bbbbbb'), write('cc')])
      expect([await next(), await next(), await next()].join('')).toBe('aabbbbbbcc')
      await written
      expect(stream.taken).toEqual([])
    })

    it('goes on where the previous agent has stopped', async () => {
      const { writeStored, next } = inputStream()
      const written = writeStored('abcdefgh', { movedBytes: 3 })
      expect([await next(), await next()]).toEqual(['defg', 'h'])
      await written
    })

    it('that the previous agent has moved is answered, also after the end of the input', async () => {
      const { stream, writeStored, next } = inputStream()
      await stream.end()
      await writeStored('abcd', { movedBytes: 4 })
      expect(await next()).toBe('')
      await expect(writeStored('abcd')).rejects.toThrow('Cannot get writer')
    })

    it('is moved no further when its call is aborted, or the process has ended', async () => {
      const { stream, writeStored, next } = inputStream()
      const caller = new AbortController()
      const written = writeStored('abcdefgh', { signal: caller.signal })
      await new Promise(setImmediate)
      caller.abort(new Error('gone'))
      await expect(written).rejects.toThrow('gone')
      expect(await next()).toBe('abcd')
      const last = writeStored('ijklmnop')
      expect(await next()).toBe('ijkl')
      stream.processEnded()
      await expect(last).rejects.toMatchObject({ errno: 'EPIPE' })
    })
  })

  it('fails pending writes when it is closed, and closes its descriptor', async () => {
    const { os, stream, write } = inputStream()
    const writes = [write('abcdef'), write('g')]
    void stream.close()
    for (const written of writes) await expect(written).rejects.toMatchObject({ errno: 'EPIPE' })
    expect(os.streams.openFds).toHaveLength(1)
  })
})
