import { setImmediate as turn } from 'node:timers/promises'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { abortable, cancelled } from '../../src/base/abort.ts'

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

function abortedSoon(): AbortSignal {
  const call = new AbortController()
  queueMicrotask(() => call.abort(cancelled()))
  return call.signal
}
