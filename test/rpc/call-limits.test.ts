import { getEventListeners } from 'node:events'
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { cancelled, deadlineExceeded } from '../../src/base/abort.ts'
import { limitsOf } from '../../src/rpc/call-limits.ts'

describe('limitsOf', () => {
  beforeEach(() => void vi.useFakeTimers())
  afterEach(() => void vi.useRealTimers())

  function begin(timeoutMs?: number) {
    const hangup = new AbortController()
    const call: Parameters<typeof limitsOf>[1] = { interrupt: undefined }
    return { hangup, call, limits: limitsOf({ hangup: hangup.signal, timeoutMs }, call) }
  }

  const ENDS = {
    'the hang-up': { reason: cancelled(), end: ({ hangup }: ReturnType<typeof begin>) => hangup.abort() },
    'the deadline': { reason: deadlineExceeded(), end: () => vi.advanceTimersByTime(1000) },
    'an interruption': {
      reason: cancelled(),
      end: ({ call }: ReturnType<typeof begin>) => call?.interrupt?.(cancelled()),
    },
  }
  describe.each(Object.entries(ENDS))('fires the signal at %s', (_name, { reason, end }) => {
    it('before the first use of the signal', () => {
      const begun = begin(1000)
      end(begun)
      expect(begun.limits.signal).toMatchObject({ aborted: true, reason })
    })

    it('after the first use of the signal', () => {
      const begun = begin(1000)
      const { signal } = begun.limits
      expect(signal.aborted).toBe(false)
      end(begun)
      expect(signal).toMatchObject({ aborted: true, reason })
    })
  })

  it('lets no call begin whose deadline is over', () => {
    expect(() => begin(0).limits.throwIfOver()).toThrow(deadlineExceeded())
    expect(() => begin(1).limits.throwIfOver()).not.toThrow()
  })

  it('leaves no listener and no timer after its release', () => {
    const { hangup, limits } = begin(1000)
    expect(limits.signal.aborted).toBe(false)
    expect(getEventListeners(hangup.signal, 'abort')).toHaveLength(1)
    limits.release()
    expect(getEventListeners(hangup.signal, 'abort')).toHaveLength(0)
    expect(vi.getTimerCount()).toBe(0)
  })

  it('adds no listener when the signal is first used after the release', () => {
    const { hangup, limits } = begin()
    limits.release()
    expect(limits.signal.aborted).toBe(false)
    expect(getEventListeners(hangup.signal, 'abort')).toHaveLength(0)
  })
})
