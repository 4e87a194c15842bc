import { once } from 'node:events'
import { closeSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { Worker } from 'node:worker_threads'
import { afterEach, beforeAll, describe, expect, it } from 'vitest'
import { unwrap } from '../../src/os/errors.ts'
import type { Native } from '../../src/os/native.ts'
import type { Fd } from '../../src/os/streams/streams.ts'
import { addonFolder, realNative, withNativeInOtherProcess } from '../support/os/real-native.ts'

let native: Native
beforeAll(async () => {
  native = await realNative()
})

const opened: Fd[] = []
afterEach(() => {
  for (const fd of opened.splice(0)) native.close(fd)
})

function openPair(kind: 'pipe' | 'socketPair'): readonly [Fd, Fd] {
  const pair = unwrap('open', kind, native[kind]())
  opened.push(...pair)
  return pair
}

function ready(fd: Fd, direction: 'read' | 'write'): Promise<void> {
  return new Promise((resolve) => {
    native.watchFd(fd, direction, resolve)
  })
}

const EAGAIN = 11
const EBUSY = 16
const ENOENT = 2

describe('watchFd', () => {
  it('calls back when there is something to read, and only once', async () => {
    const [reading, writing] = openPair('pipe')
    let calls = 0
    native.watchFd(reading, 'read', () => {
      calls += 1
    })
    native.write(writing, Buffer.from('a'))
    await ready(reading, 'read')
    await ready(reading, 'read')
    expect(calls).toBe(1)
  })

  it('calls back at EOF', async () => {
    const [reading, writing] = unwrap('open', 'a pipe', native.pipe())
    const isReady = ready(reading, 'read')
    native.close(writing)
    await isReady
    expect(unwrap('read', 'a pipe', native.read(reading, 10)).length).toBe(0)
    native.close(reading)
  })

  it('calls a writer back when the last reader is gone', async () => {
    const [reading, writing] = unwrap('open', 'a pipe', native.pipe())
    fill(writing)
    const isReady = ready(writing, 'write')
    native.close(reading)
    await isReady
    expect(native.write(writing, Buffer.from('a'))).toBe(-32)
    native.close(writing)
  })

  it('watches one descriptor for both directions at once', async () => {
    const [one, other] = openPair('socketPair')
    const readable = ready(one, 'read')
    await ready(one, 'write')
    native.write(other, Buffer.from('a'))
    await readable
    expect(unwrap('read', 'a socket', native.read(one, 10)).toString()).toBe('a')
  })

  it('calls back every watch of the same kind', async () => {
    const [reading, writing] = openPair('pipe')
    const called: string[] = []
    for (const name of ['one', 'other']) native.watchFd(reading, 'read', () => called.push(name))
    native.write(writing, Buffer.from('a'))
    await expect.poll(() => called.toSorted()).toEqual(['one', 'other'])
  })

  it('watches a descriptor again, and another one that has got its number', async () => {
    const [one, other] = openPair('pipe')
    for (const _ of [1, 2]) {
      native.write(other, Buffer.from('a'))
      await ready(one, 'read')
      expect(unwrap('read', 'a pipe', native.read(one, 10)).toString()).toBe('a')
    }
    // Each pipe has the numbers of the previous one.
    for (const close of [(fd: Fd) => native.close(fd), closeSync, closeSync]) {
      const [reading, writing] = unwrap('open', 'a pipe', native.pipe())
      const isReady = ready(reading, 'read')
      native.write(writing, Buffer.from('a'))
      await isReady
      // The open file description stays open, as it does in vminit.
      const stored = native.duplicate(reading)
      close(reading)
      close(writing)
      native.close(stored)
    }
  })

  it('does not block a read of what it has watched', async () => {
    const [reading, writing] = openPair('pipe')
    native.write(writing, Buffer.from('a'))
    await ready(reading, 'read')
    unwrap('read', 'a pipe', native.read(reading, 10))
    expect(native.read(reading, 10)).toBe(-EAGAIN)
  })

  it('calls back more descriptors at once than one poll finds', async () => {
    const pipes = Array.from({ length: 200 }, () => openPair('pipe'))
    const called = new Set<Fd>()
    for (const [reading] of pipes) native.watchFd(reading, 'read', () => called.add(reading))
    for (const [, writing] of pipes) native.write(writing, Buffer.from('a'))
    await expect.poll(() => called.size).toBe(200)
  })

  it('refuses a descriptor without readiness', () => {
    expect(native.watchFd(9999, 'read', () => {})).toBe(-9)
    expect(native.watchFd(-1, 'read', () => {})).toBe(-9)
  })

  it('names an argument of the wrong type', () => {
    // @ts-expect-error the third argument must be a function
    expect(() => native.watchFd(0, 'read', 'ready')).toThrow('argument 3 must be a function')
  })

  it('reports an exception of the callback to the process', async () => {
    const stdout = await withNativeInOtherProcess(`
      const [reading, writing] = native.pipe();
      process.on('uncaughtException', (error) => console.log('caught', error.message));
      native.watchFd(reading, 'read', () => { throw new Error('oops') });
      native.write(writing, Buffer.from('a'));`)
    expect(stdout).toBe('caught oops\n')
  })

  it('keeps the threads for files free', async () => {
    const pipes = Array.from({ length: 100 }, () => openPair('pipe'))
    const all = Promise.all(pipes.map(([reading]) => ready(reading, 'read')))
    expect(await readFile('/proc/self/stat', 'utf8')).toContain(`${process.pid} (`)
    for (const [, writing] of pipes) native.write(writing, Buffer.from('a'))
    await all
  })
})

describe('cancelWatch', () => {
  it('ends one of two watches of a descriptor', async () => {
    const [reading, writing] = openPair('pipe')
    let called = false
    const watch = native.watchFd(reading, 'read', () => {
      called = true
    })
    const other = ready(reading, 'read')
    expect(native.cancelWatch(reading, watch)).toBe(0)
    native.write(writing, Buffer.from('a'))
    await other
    expect(called).toBe(false)
    expect(native.cancelWatch(reading, watch)).toBe(-ENOENT)
  })

  it('ends a watch from within the callback of another one', async () => {
    const [reading, writing] = openPair('pipe')
    let called = false
    const first = new Promise<number>((resolve) => {
      native.watchFd(reading, 'read', () => resolve(native.cancelWatch(reading, second)))
    })
    const second = native.watchFd(reading, 'read', () => {
      called = true
    })
    native.write(writing, Buffer.from('a'))
    expect(await first).toBe(0)
    await ready(reading, 'read')
    expect(called).toBe(false)
  })

  it('leaves nothing behind that keeps the process alive', async () => {
    const stdout = await withNativeInOtherProcess(`
      const [reading] = native.pipe();
      for (let round = 0; round < 10000; round++) native.cancelWatch(reading, native.watchFd(reading, 'read', () => {}));
      console.log(native.close(reading));`)
    expect(stdout).toBe('0\n')
  })
})

describe('close', () => {
  it('refuses a descriptor that is watched', () => {
    const [reading] = openPair('pipe')
    const watch = native.watchFd(reading, 'read', () => {})
    expect(native.close(reading)).toBe(-EBUSY)
    native.cancelWatch(reading, watch)
  })
})

describe('the end of an environment', () => {
  it('cleans up watches, reads and relays that are pending', async () => {
    const worker = new Worker(join(import.meta.dirname, 'ending-environment.ts'), {
      workerData: await addonFolder(),
    })
    await once(worker, 'message')
    expect(await worker.terminate()).toBe(1)
  })
})

function fill(fd: Fd): void {
  native.setNonBlocking(fd, true)
  while (native.write(fd, Buffer.alloc(4096)) > 0);
}
