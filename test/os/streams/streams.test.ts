import { execFileSync } from 'node:child_process'
import { describe, expect, it } from 'vitest'
import { linuxStreams } from '../../../src/os/streams/linux-streams.ts'
import type { Streams } from '../../../src/os/streams/streams.ts'
import { FakeStreams } from '../../support/fakes/streams/fake-streams.ts'
import { realNative } from '../../support/os/real-native.ts'

const implementations: readonly (readonly [string, () => Promise<Streams>])[] = [
  ['linuxStreams', async () => linuxStreams(await realNative())],
  ['FakeStreams', async () => new FakeStreams()],
]

describe.each(implementations)('%s', (_name, build) => {
  it('reads what a child writes, then EOF', async () => {
    const streams = await build()
    const { parentEnd, childEnd } = streams.pipe('child-writes')
    expect(streams.tryRead(parentEnd, 10)).toBeUndefined()
    const readable = streams.readable(parentEnd)
    expect(streams.tryWrite(childEnd, Buffer.from('abcdef'))).toBe(6)
    await readable
    expect(streams.tryRead(parentEnd, 4)?.toString()).toBe('abcd')
    streams.close(childEnd)
    expect(streams.tryRead(parentEnd, 4)?.toString()).toBe('ef')
    await streams.readable(parentEnd)
    expect(streams.tryRead(parentEnd, 4)?.length).toBe(0)
    streams.close(parentEnd)
  })

  it('writes until the pipe is full, and continues when there is room', async () => {
    const streams = await build()
    const { parentEnd, childEnd } = streams.pipe('child-reads', 4096)
    expect(streams.tryWrite(parentEnd, Buffer.alloc(5000))).toBe(4096)
    expect(streams.tryWrite(parentEnd, Buffer.alloc(1))).toBe(0)
    const writable = streams.writable(parentEnd)
    expect(streams.tryRead(childEnd, 4096)?.length).toBe(4096)
    await writable
    expect(streams.tryWrite(parentEnd, Buffer.alloc(1))).toBe(1)
    streams.close(parentEnd)
    streams.close(childEnd)
  })

  it('enlarges a pipe and reads all of it at once', async () => {
    const streams = await build()
    const { parentEnd, childEnd } = streams.pipe('child-writes')
    expect(streams.growPipe(parentEnd, 200_000)).toBe(true)
    expect(streams.tryWrite(childEnd, Buffer.alloc(200_000, 'x'))).toBe(200_000)
    const bytes = streams.tryRead(parentEnd, 1_000_000)
    expect(bytes?.equals(Buffer.alloc(200_000, 'x'))).toBe(true)
    streams.close(parentEnd)
    streams.close(childEnd)
  })

  it('keeps the size of a pipe that is large enough', async () => {
    const streams = await build()
    const { parentEnd, childEnd } = streams.pipe('child-reads', 1_048_576)
    expect(streams.growPipe(parentEnd, 100_000)).toBe(true)
    expect(streams.tryWrite(parentEnd, Buffer.alloc(1_048_576))).toBe(1_048_576)
    streams.close(parentEnd)
    streams.close(childEnd)
  })

  it('throws EPIPE when no reader is left', async () => {
    const streams = await build()
    const { parentEnd, childEnd } = streams.pipe('child-reads')
    streams.close(childEnd)
    await streams.writable(parentEnd)
    expect(() => streams.tryWrite(parentEnd, Buffer.from('a'))).toThrow(`write fd ${parentEnd}: EPIPE`)
    streams.close(parentEnd)
  })

  it('rejects a wait with the reason of its signal', async () => {
    const streams = await build()
    const { parentEnd, childEnd } = streams.pipe('child-writes')
    const stop = new AbortController()
    const readable = streams.readable(parentEnd, stop.signal)
    stop.abort(new Error('enough'))
    await expect(readable).rejects.toThrow('enough')
    await expect(streams.readable(parentEnd, stop.signal)).rejects.toThrow('enough')
    streams.close(parentEnd)
    streams.close(childEnd)
  })

  it('rejects the waits on a descriptor that is closed', async () => {
    const streams = await build()
    const { parentEnd, childEnd } = streams.pipe('child-writes')
    const readable = streams.readable(parentEnd)
    const expectation = expect(readable).rejects.toThrow(`poll fd ${parentEnd}: EBADF`)
    streams.close(parentEnd)
    streams.close(childEnd)
    await expectation
    expect(() => streams.close(parentEnd)).toThrow(`close fd ${parentEnd}: EBADF`)
  })

  it('ends a pipe only when every duplicate of its writing end is closed', async () => {
    const streams = await build()
    const { parentEnd, childEnd } = streams.pipe('child-writes')
    const duplicate = streams.duplicate(childEnd)
    streams.close(childEnd)
    expect(streams.tryRead(parentEnd, 10)).toBeUndefined()
    streams.close(duplicate)
    expect(streams.tryRead(parentEnd, 10)?.length).toBe(0)
    streams.close(parentEnd)
  })

  it('relays one pipe into another', async () => {
    const streams = await build()
    const [from, to] = [streams.pipe('child-writes'), streams.pipe('child-reads')]
    const result = streams.relay(from.parentEnd, to.parentEnd)
    streams.tryWrite(from.childEnd, Buffer.from('abc'))
    await streams.readable(to.childEnd)
    expect(streams.tryRead(to.childEnd, 10)?.toString()).toBe('abc')
    streams.close(from.childEnd)
    expect(await result).toEqual({ bytes: 3n, errno: undefined })
    expect(streams.tryRead(to.childEnd, 10)?.length).toBe(0)
    streams.close(to.childEnd)
  })
})

describe('linuxStreams', () => {
  it('gives a child a blocking end, which no other program inherits', async () => {
    const streams = linuxStreams(await realNative())
    const { parentEnd, childEnd } = streams.pipe('child-writes')
    const flags = execFileSync('grep', ['flags', `/proc/${process.pid}/fdinfo/${childEnd}`], {
      encoding: 'utf8',
    })
    // O_WRONLY and O_CLOEXEC, but not O_NONBLOCK (04000).
    expect(flags.trim()).toBe('flags:\t02000001')
    streams.close(parentEnd)
    streams.close(childEnd)
  })

  it('names the pipe size that the kernel refuses', async () => {
    const streams = linuxStreams(await realNative())
    expect(() => streams.pipe('child-writes', 2 ** 31 - 1)).toThrow(/^size a pipe of 2147483647 bytes: E/)
  })
})
