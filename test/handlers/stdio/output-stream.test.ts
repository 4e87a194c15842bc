import { describe, expect, it } from 'vitest'
import { neverAborted } from '../../../src/base/abort.ts'
import { type OutputSource, OutputStream } from '../../../src/handlers/stdio/output-stream.ts'
import { StoredDescriptors } from '../../../src/handlers/stdio/stored-descriptors.ts'
import type { Fd } from '../../../src/os/streams/streams.ts'
import { FakeOs } from '../../support/fakes/fake-os.ts'
import { callOf } from '../../support/handlers/call.ts'

const NOTHING: Uint8Array = new Uint8Array(0)

function sourceOf(os: FakeOs, fd: Fd, capacityBytes: number): OutputSource {
  const stored = new StoredDescriptors(os.descriptors, 'p1')
  stored.put('stdout', fd)
  return { fd, capacityBytes, name: 'stdout', isTerminal: false, stored }
}

function outputStream(sizeBytes = 0) {
  const os = new FakeOs()
  const { parentEnd, childEnd } = os.streams.pipe('child-writes', sizeBytes)
  const stream = new OutputStream(os, sourceOf(os, parentEnd, sizeBytes))
  return {
    os,
    stream,
    write: (text: string) => os.streams.tryWrite(childEnd, Buffer.from(text)),
    closeChildEnd: () => os.streams.close(childEnd),
    read: async (maxBytes = 100, signal = neverAborted) =>
      Buffer.from((await stream.read(maxBytes, callOf(signal))).read()).toString(),
  }
}

describe('OutputStream', () => {
  it('returns the bytes in the pipe, at most as many as requested', async () => {
    const { read, write } = outputStream()
    write('abc')
    expect(await read(2)).toBe('ab')
    expect(await read(2)).toBe('c')
  })

  it('gives a read with a name its bytes again, until another read says that they have arrived', async () => {
    const { stream, write } = outputStream()
    const named = async (outputRead: string | undefined) =>
      await stream.read(3, { ...callOf(neverAborted), outputRead })
    const textOf = (read: { read(): Uint8Array }) => Buffer.from(read.read()).toString()
    write('abcdefgh')
    const first = await named('r 1')
    first.delivered()
    const again = await named('r 1')
    expect([textOf(first), textOf(again)]).toEqual(['abc', 'abc'])
    again.dropped()
    expect(textOf(await named('r 1'))).toBe('abc')
    const second = await named('r 2')
    expect(textOf(second)).toBe('def')
    // The answer to a dead connection may be given up after another one has arrived.
    const repeated = await named('r 2')
    repeated.delivered()
    second.dropped()
    expect(textOf(await named(undefined))).toBe('gh')
  })

  it('makes the bytes of a read with a name unread when none of its answers can have arrived', async () => {
    const { stream, write } = outputStream()
    write('abc')
    const [one, two] = [
      await stream.read(3, { ...callOf(neverAborted), outputRead: 'r 1' }),
      await stream.read(3, { ...callOf(neverAborted), outputRead: 'r 1' }),
    ]
    one.dropped()
    two.dropped()
    const other = await stream.read(3, callOf(neverAborted))
    expect(Buffer.from(other.read()).toString()).toBe('abc')
  })

  it('enlarges the pipe to the size of a read, up to 1 MiB', async () => {
    const { read, write } = outputStream()
    const first = read(4_000_000)
    write('x')
    expect(await first).toBe('x')
    expect(write('y'.repeat(4_000_000))).toBe(1_048_576)
    expect(await read(4_000_000)).toHaveLength(1_048_576)
  })

  it('keeps the size of a pipe with a configured size', async () => {
    const { read, write } = outputStream(100_000)
    const first = read(4_000_000)
    write('x')
    expect(await first).toBe('x')
    expect(write('y'.repeat(4_000_000))).toBe(100_000)
  })

  it('reports for how long unread output has waited', async () => {
    const { os, stream, read, write } = outputStream()
    os.clock.advance(5000)
    expect(stream.unreadMs()).toBe(0)
    write('abc')
    expect(stream.unreadMs()).toBe(5000)
    await read(1)
    os.clock.advance(300)
    expect(stream.unreadMs()).toBe(300)
    await read()
    const pending = read()
    os.clock.advance(300)
    write('x')
    expect(stream.unreadMs()).toBe(0)
    await pending
    write('y')
    void stream.close()
    expect(stream.unreadMs()).toBe(0)
  })

  it('waits for the first byte', async () => {
    const { read, write } = outputStream()
    const pending = read()
    write('x')
    expect(await pending).toBe('x')
  })

  it('ends for good when the last writer closes its end', async () => {
    const { read, write, closeChildEnd } = outputStream()
    write('x')
    closeChildEnd()
    expect([await read(), await read(), await read()]).toEqual(['x', '', ''])
  })

  it('returns from a read of zero bytes at once', async () => {
    const { read } = outputStream()
    expect(await read(0)).toBe('')
  })

  it('returns each byte to one of several readers', async () => {
    const { read, write } = outputStream()
    const readers = [read(1), read(1), read(1)]
    write('abc')
    expect((await Promise.all(readers)).sort()).toEqual(['a', 'b', 'c'])
  })

  it('rejects an aborted read, and keeps the bytes for the other readers', async () => {
    const { read, write } = outputStream()
    const caller = new AbortController()
    const [aborted, other] = [read(9, caller.signal), read(9)]
    caller.abort(new Error('gone'))
    await expect(aborted).rejects.toThrow('gone')
    write('x')
    expect(await other).toBe('x')
  })

  it('returns undelivered output to the front of the stream, and before its end', async () => {
    const { stream, read, write, closeChildEnd } = outputStream()
    write('first')
    const lost = await stream.read(9, callOf())
    write('later')
    closeChildEnd()
    lost.dropped()
    expect([await read(3), await read(2)]).toEqual(['fir', 'st'])
    const last = await stream.read(9, callOf())
    expect([Buffer.from(last.read()).toString(), await read()]).toEqual(['later', ''])
    last.dropped()
    expect([await read(), await read()]).toEqual(['later', ''])
  })

  it('keeps the order of several undelivered reads, whichever is unread first', async () => {
    const { stream, read, write } = outputStream()
    write('abcdef')
    const answers = [
      await stream.read(1, callOf()),
      await stream.read(2, callOf()),
      await stream.read(1, callOf()),
    ]
    for (const index of [0, 2, 1]) answers[index]?.dropped()
    const first = await stream.read(2, callOf())
    const second = await stream.read(1, callOf())
    second.dropped()
    first.dropped()
    expect([await read(1), await read(2), await read(1), await read(2)]).toEqual(['a', 'bc', 'd', 'ef'])
  })

  it('resolves one pending read with undelivered output, and leaves the others pending', async () => {
    const { stream, read, write } = outputStream()
    write('lost')
    const lost = await stream.read(9, callOf())
    const [waiting, other] = [read(), read()]
    lost.dropped()
    expect(await waiting).toBe('lost')
    write('new')
    expect(await other).toBe('new')
  })

  it('drops undelivered output once it is closed', async () => {
    const { stream, read, write } = outputStream()
    write('x')
    const lost = await stream.read(9, callOf())
    const pending = read()
    void stream.close()
    lost.dropped()
    expect(await pending).toBe('')
  })

  it('consumes nothing for a read that is already aborted', async () => {
    const { read, write } = outputStream()
    write('x')
    await expect(read(9, AbortSignal.abort(new Error('gone')))).rejects.toThrow('gone')
    expect(await read()).toBe('x')
  })

  it('waits 0.5 s for output after the end of the process', async () => {
    const { os, stream, read, write } = outputStream()
    stream.processEnded()
    const pending = read()
    os.clock.advance(499)
    write('late')
    expect(await pending).toBe('late')
    const last = read()
    os.clock.advance(1)
    expect(await last).toBe('')
  })

  it('returns what is left in the pipe however late the read is, then ends', async () => {
    const { os, stream, read, write } = outputStream()
    write('kept')
    stream.processEnded()
    os.clock.advance(60_000)
    expect([await read(2), await read(), await read()]).toEqual(['ke', 'pt', ''])
  })

  it('returns everything from a pipe that its writer enlarged', async () => {
    const os = new FakeOs()
    const { parentEnd, childEnd } = os.streams.pipe('child-writes', 2 ** 20)
    const stream = new OutputStream(os, sourceOf(os, parentEnd, 0))
    os.streams.tryWrite(childEnd, Buffer.alloc(2 ** 20))
    stream.processEnded()
    os.clock.advance(500)
    let bytes = 0
    for (let data = NOTHING; bytes === 0 || data.length > 0; bytes += data.length) {
      data = (await stream.read(2 ** 20, callOf())).read()
    }
    expect(bytes).toBe(2 ** 20)
  })

  it('ends although a grandchild keeps writing', async () => {
    const { os, stream, read, write } = outputStream()
    stream.processEnded()
    os.clock.advance(500)
    let bytes = 0
    for (let text = ' '; text !== ''; bytes += text.length) {
      write('y'.repeat(40_000))
      text = await read(1_000_000)
    }
    expect(bytes).toBeLessThan(2_000_000)
  })

  it('ends pending reads when it is closed, and refuses new ones', async () => {
    const { os, stream, read } = outputStream()
    const pending = read()
    void stream.close()
    void stream.close()
    expect(await pending).toBe('')
    await expect(read()).rejects.toMatchObject({ code: 'INTERNAL', message: 'cannot get stream reader' })
    expect(os.streams.openFds).toHaveLength(1)
  })

  it('ends reads that wait for answers on their way when it is closed', async () => {
    const { os, stream, read, write } = outputStream()
    write('x'.repeat(200))
    for (let answer = 0; answer < 127; answer++) await stream.read(1, callOf())
    const pending = [read(), read()]
    await new Promise(setImmediate)
    const closed = stream.close()
    expect(await Promise.all(pending)).toEqual(['', ''])
    await closed
    expect(os.streams.openFds).toHaveLength(1)
  })

  it('stops its timer when it is closed', async () => {
    const { os, stream } = outputStream()
    stream.processEnded()
    void stream.close()
    await new Promise(setImmediate)
    expect(os.clock.sleeping).toBe(0)
  })

  it('frees the memory of delivered output while other answers are on their way', async () => {
    const { os, stream, write } = outputStream(2 ** 20)
    const file = () => os.streams.openFds.find((fd) => os.streams.isMemoryFile(fd)) ?? -1
    write('x'.repeat(60_000))
    let earlier = await stream.read(50_000, callOf())
    for (let round = 0; round < 60; round++) {
      write('x'.repeat(50_000))
      const later = await stream.read(50_000, callOf())
      earlier.delivered()
      earlier = later
    }
    expect(os.streams.memoryBytes(file())).toBeLessThan(2 * 2 ** 20)
    earlier.delivered()
  }, 60_000)

  it('keeps no memory once it was idle for a second', async () => {
    const { os, stream, read, write } = outputStream()
    write('x'.repeat(60_000))
    const answer = await stream.read(60_000, callOf())
    answer.delivered()
    const file = os.streams.openFds.find((fd) => os.streams.isMemoryFile(fd)) ?? -1
    const pending = read()
    await new Promise(setImmediate)
    expect(os.streams.memoryBytes(file)).toBeGreaterThan(60_000)
    os.clock.advance(1000)
    await new Promise(setImmediate)
    expect(os.streams.memoryBytes(file)).toBe(4096)
    write('y')
    expect(await pending).toBe('y')
  })

  it('fails when vminit cannot store what it reads, and reads once it can', async () => {
    const { os, read, write } = outputStream()
    os.descriptors.capacity = 1
    write('kept')
    await expect(read()).rejects.toMatchObject({ code: 'RESOURCE_EXHAUSTED' })
    os.descriptors.capacity = 9
    expect(await read()).toBe('kept')
  })

  it('keeps the data of a read when the stream is closed before they are sent', async () => {
    const { os, stream, write } = outputStream()
    write('last words')
    const output = await stream.read(100, callOf())
    expect(output.place).toBeDefined()
    await stream.close()
    os.streams.memoryFile('takes the number of the descriptor')
    expect(output.place).toBeUndefined()
    expect(Buffer.from(output.read()).toString()).toBe('last words')
  })
})
