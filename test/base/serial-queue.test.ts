import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { describe, expect, it } from 'vitest'
import { neverAborted } from '../../src/base/abort.ts'
import { SerialQueue } from '../../src/base/serial-queue.ts'

describe('SerialQueue', () => {
  it('runs one task after the other, even after a failure', async () => {
    const queue = new SerialQueue()
    const done: number[] = []
    const first = Promise.withResolvers<void>()
    const one = queue.run(() => first.promise.then(() => done.push(1)), neverAborted)
    const two = queue.run(async () => {
      done.push(2)
      throw new Error('two')
    }, neverAborted)
    const three = queue.run(async () => done.push(3), neverAborted)
    first.resolve()
    await Promise.allSettled([one, two, three])
    expect(done).toEqual([1, 2, 3])
    await expect(two).rejects.toThrow('two')
  })

  it('skips the task of an aborted caller and keeps the order of the others', async () => {
    const queue = new SerialQueue()
    const done: number[] = []
    const first = Promise.withResolvers<void>()
    const one = queue.run(() => first.promise.then(() => done.push(1)), neverAborted)
    const caller = new AbortController()
    const two = queue.run(async () => done.push(2), caller.signal)
    const three = queue.run(async () => done.push(3), neverAborted)
    caller.abort(new Error('hung up'))
    await expect(two).rejects.toThrow('hung up')
    expect(done).toEqual([])
    first.resolve()
    await Promise.all([one, three])
    expect(done).toEqual([1, 3])
  })

  it('keeps no result of a task that has ended', async () => {
    setFlagsFromString('--expose-gc')
    const collectGarbage: () => void = runInNewContext('gc')
    const queue = new SerialQueue()
    const results: WeakRef<object>[] = []
    for (let count = 0; count < 3; count += 1) {
      await queue.run(async () => {
        const result = { count }
        results.push(new WeakRef(result))
        return result
      }, neverAborted)
    }
    await new Promise(setImmediate)
    collectGarbage()
    expect(results.map((result) => result.deref())).toEqual([undefined, undefined, undefined])
    await queue.run(async () => {}, neverAborted)
  })
})
