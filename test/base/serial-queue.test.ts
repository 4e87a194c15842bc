import { describe, expect, it } from 'vitest'
import { Turns } from '../../src/base/serial-queue.ts'

const PATIENT = new AbortController().signal

describe('Turns', () => {
  it('does one piece of work after the other, whatever becomes of each', async () => {
    const turns = new Turns()
    const done: number[] = []
    const first = Promise.withResolvers<void>()
    const one = turns.take(() => first.promise.then(() => done.push(1)), PATIENT)
    const two = turns.take(async () => {
      done.push(2)
      throw new Error('two')
    }, PATIENT)
    const three = turns.take(async () => done.push(3), PATIENT)
    first.resolve()
    await Promise.allSettled([one, two, three])
    expect(done).toEqual([1, 2, 3])
    await expect(two).rejects.toThrow('two')
  })

  it('lets a caller go that gave up waiting, without its work and without changing the order', async () => {
    const turns = new Turns()
    const done: number[] = []
    const first = Promise.withResolvers<void>()
    const one = turns.take(() => first.promise.then(() => done.push(1)), PATIENT)
    const caller = new AbortController()
    const two = turns.take(async () => done.push(2), caller.signal)
    const three = turns.take(async () => done.push(3), PATIENT)
    caller.abort(new Error('hung up'))
    await expect(two).rejects.toThrow('hung up')
    expect(done).toEqual([])
    first.resolve()
    await Promise.all([one, three])
    expect(done).toEqual([1, 3])
  })
})
