import { setImmediate as turn } from 'node:timers/promises'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { abortable, cancelled, deadlineExceeded, LateAbort, withTimeout } from '../../src/base/abort.ts'
import { FakeClock } from '../support/fakes/fake-clock.ts'

describe('LateAbort', () => {
  it.each(['before', 'after'])('has a signal that fires once, aborted %s its first use', (when) => {
    const abort = new LateAbort()
    if (when === 'after') expect(abort.signal.aborted).toBe(false)
    abort.abort(cancelled())
    abort.abort(deadlineExceeded())
    expect(abort.signal).toMatchObject({ aborted: true, reason: cancelled() })
    expect(() => abort.throwIfAborted()).toThrow(cancelled())
  })

  it('does not throw before it is aborted', () => {
    expect(() => new LateAbort().throwIfAborted()).not.toThrow()
  })
})

describe('abortable', () => {
  const unhandled: unknown[] = []
  const record = (reason: unknown) => unhandled.push(reason)

  beforeEach(() => {
    unhandled.length = 0
    process.on('unhandledRejection', record)
  })

  afterEach(() => {
    process.off('unhandledRejection', record)
  })

  it('throws the reason of the signal', async () => {
    const call = new AbortController()
    const racing = abortable(new Promise<never>(() => {}), call.signal)
    call.abort(cancelled())
    await expect(racing).rejects.toMatchObject({ code: 'CANCELLED' })
  })

  it.each([
    ['before it is waited for', () => AbortSignal.abort(cancelled())],
    ['while it is waited for', abortedSoon],
  ])('ignores the later failure of a promise whose wait was aborted %s', async (_when, signalOf) => {
    const work = Promise.withResolvers<void>()
    await expect(abortable(work.promise, signalOf())).rejects.toMatchObject({ code: 'CANCELLED' })
    work.reject(new Error('too late'))
    await turn()
    expect(unhandled).toEqual([])
  })
})

describe('withTimeout', () => {
  it.each(['resolves', 'rejects'])(
    'gives the outcome of work that %s in time, and keeps no timer',
    async (how) => {
      const clock = new FakeClock()
      const work = how === 'resolves' ? Promise.resolve('done') : Promise.reject(cancelled())
      const outcome = await withTimeout(clock, 1000, work, deadlineExceeded).catch((error: unknown) => error)
      expect(outcome).toBe(how === 'resolves' ? 'done' : cancelled())
      expect(clock.sleeping).toBe(0)
    },
  )

  it('throws the error of late work', async () => {
    const clock = new FakeClock()
    const work = withTimeout(clock, 1000, new Promise<never>(() => {}), deadlineExceeded)
    clock.advance(1000)
    await expect(work).rejects.toBe(deadlineExceeded())
  })
})

function abortedSoon(): AbortSignal {
  const call = new AbortController()
  queueMicrotask(() => call.abort(cancelled()))
  return call.signal
}
