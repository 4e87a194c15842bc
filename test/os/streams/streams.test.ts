import { execFileSync } from 'node:child_process'
import { describe, expect, it } from 'vitest'
import type { Streams } from '../../../src/os/os.ts'
import { linuxStreams } from '../../../src/os/streams/streams.ts'
import { FakeStreams } from '../../support/fakes/fake-streams.ts'
import { realNative } from '../../support/os/real-native.ts'

const implementations: readonly (readonly [string, () => Promise<Streams>])[] = [
  ['linuxStreams', async () => linuxStreams(await realNative())],
  ['FakeStreams', async () => new FakeStreams()],
]

describe.each(implementations)('%s', (_name, build) => {
  it('reads what a child writes, then EOF', async () => {
    const streams = await build()
    const { ours, theirs } = streams.pipe('child-writes')
    expect(streams.tryRead(ours, 10)).toBeUndefined()
    const readable = streams.readable(ours)
    expect(streams.tryWrite(theirs, Buffer.from('abcdef'))).toBe(6)
    await readable
    expect(streams.tryRead(ours, 4)?.toString()).toBe('abcd')
    streams.close(theirs)
    expect(streams.tryRead(ours, 4)?.toString()).toBe('ef')
    await streams.readable(ours)
    expect(streams.tryRead(ours, 4)?.length).toBe(0)
    streams.close(ours)
  })

  it('writes until the pipe is full, and on when there is room', async () => {
    const streams = await build()
    const { ours, theirs } = streams.pipe('child-reads', 4096)
    expect(streams.tryWrite(ours, Buffer.alloc(5000))).toBe(4096)
    expect(streams.tryWrite(ours, Buffer.alloc(1))).toBe(0)
    const writable = streams.writable(ours)
    expect(streams.tryRead(theirs, 4096)?.length).toBe(4096)
    await writable
    expect(streams.tryWrite(ours, Buffer.alloc(1))).toBe(1)
    streams.close(ours)
    streams.close(theirs)
  })

  it('lets a pipe hold more, and reads it at once', async () => {
    const streams = await build()
    const { ours, theirs } = streams.pipe('child-writes')
    expect(streams.growPipe(ours, 200_000)).toBe(true)
    expect(streams.tryWrite(theirs, Buffer.alloc(200_000, 'x'))).toBe(200_000)
    const bytes = streams.tryRead(ours, 1_000_000)
    expect(bytes?.equals(Buffer.alloc(200_000, 'x'))).toBe(true)
    streams.close(ours)
    streams.close(theirs)
  })

  it('leaves a pipe alone that holds enough', async () => {
    const streams = await build()
    const { ours, theirs } = streams.pipe('child-reads', 1_048_576)
    expect(streams.growPipe(ours, 100_000)).toBe(true)
    expect(streams.tryWrite(ours, Buffer.alloc(1_048_576))).toBe(1_048_576)
    streams.close(ours)
    streams.close(theirs)
  })

  it('throws EPIPE when no reader is left', async () => {
    const streams = await build()
    const { ours, theirs } = streams.pipe('child-reads')
    streams.close(theirs)
    await streams.writable(ours)
    expect(() => streams.tryWrite(ours, Buffer.from('a'))).toThrow(`write fd ${ours}: EPIPE`)
    streams.close(ours)
  })

  it('rejects a wait with what its signal is aborted with', async () => {
    const streams = await build()
    const { ours, theirs } = streams.pipe('child-writes')
    const stop = new AbortController()
    const readable = streams.readable(ours, stop.signal)
    stop.abort(new Error('enough'))
    await expect(readable).rejects.toThrow('enough')
    await expect(streams.readable(ours, stop.signal)).rejects.toThrow('enough')
    streams.close(ours)
    streams.close(theirs)
  })

  it('rejects the waits on a descriptor that is closed', async () => {
    const streams = await build()
    const { ours, theirs } = streams.pipe('child-writes')
    const readable = streams.readable(ours)
    const expectation = expect(readable).rejects.toThrow(`poll fd ${ours}: EBADF`)
    streams.close(ours)
    streams.close(theirs)
    await expectation
    expect(() => streams.close(ours)).toThrow(`close fd ${ours}: EBADF`)
  })

  it('ends a pipe only when every duplicate of its writing end is closed', async () => {
    const streams = await build()
    const { ours, theirs } = streams.pipe('child-writes')
    const duplicate = streams.duplicate(theirs)
    streams.close(theirs)
    expect(streams.tryRead(ours, 10)).toBeUndefined()
    streams.close(duplicate)
    expect(streams.tryRead(ours, 10)?.length).toBe(0)
    streams.close(ours)
  })

  it('relays one pipe into another', async () => {
    const streams = await build()
    const [from, to] = [streams.pipe('child-writes'), streams.pipe('child-reads')]
    const result = streams.relay(from.ours, to.ours)
    streams.tryWrite(from.theirs, Buffer.from('abc'))
    await streams.readable(to.theirs)
    expect(streams.tryRead(to.theirs, 10)?.toString()).toBe('abc')
    streams.close(from.theirs)
    expect(await result).toEqual({ bytes: 3n, errno: undefined })
    expect(streams.tryRead(to.theirs, 10)?.length).toBe(0)
    streams.close(to.theirs)
  })
})

describe('linuxStreams', () => {
  it('gives a child a blocking end, and nobody else a copy', async () => {
    const streams = linuxStreams(await realNative())
    const { ours, theirs } = streams.pipe('child-writes')
    const flags = execFileSync('grep', ['flags', `/proc/${process.pid}/fdinfo/${theirs}`], {
      encoding: 'utf8',
    })
    // O_WRONLY and O_CLOEXEC, but not O_NONBLOCK (04000).
    expect(flags.trim()).toBe('flags:\t02000001')
    streams.close(ours)
    streams.close(theirs)
  })

  it('says which pipe size the kernel refuses', async () => {
    const streams = linuxStreams(await realNative())
    expect(() => streams.pipe('child-writes', 2 ** 31 - 1)).toThrow(/^size a pipe of 2147483647 bytes: E/)
  })
})
