import { describe, expect, it } from 'vitest'
import { neverAborted } from '../../src/base/abort.ts'
import { SerialQueue } from '../../src/base/serial-queue.ts'

describe('SerialQueue', () => {
  it('runs one task after the other, even after a failure', async () => {
    const turns = new SerialQueue()
    const done: number[] = []
    const first = Promise.withResolvers<void>()
    const one = turns.run(() => first.promise.then(() => done.push(1)), neverAborted)
    const two = turns.run(async () => {
      done.push(2)
      throw new Error('two')
    }, neverAborted)
    const three = turns.run(async () => done.push(3), neverAborted)
    first.resolve()
    await Promise.allSettled([one, two, three])
    expect(done).toEqual([1, 2, 3])
    await expect(two).rejects.toThrow('two')
  })

  it('skips the task of an aborted caller and keeps the order of the others', async () => {
    const turns = new SerialQueue()
    const done: number[] = []
    const first = Promise.withResolvers<void>()
    const one = turns.run(() => first.promise.then(() => done.push(1)), neverAborted)
    const caller = new AbortController()
    const two = turns.run(async () => done.push(2), caller.signal)
    const three = turns.run(async () => done.push(3), neverAborted)
    caller.abort(new Error('hung up'))
    await expect(two).rejects.toThrow('hung up')
    expect(done).toEqual([])
    first.resolve()
    await Promise.all([one, three])
    expect(done).toEqual([1, 3])
  })
})
