import { describe, expect, it } from 'vitest'
import { neverAborted } from '../../src/base/abort.ts'
import { Changes } from '../../src/base/changes.ts'
import { isPending } from '../support/pending.ts'

describe('Changes', () => {
  it('wakes all waiters in their order, and no later ones', async () => {
    const changes = new Changes()
    const woken: string[] = []
    const waits = ['first', 'second'].map((name) => changes.next(neverAborted).then(() => woken.push(name)))
    changes.announce()
    const later = changes.next(neverAborted)
    await Promise.all(waits)
    expect(woken).toEqual(['first', 'second'])
    expect(await isPending(later)).toBe(true)
  })

  it('wakes one waiter, of those who still wait', async () => {
    const changes = new Changes()
    const gone = new AbortController()
    const waits = [gone.signal, neverAborted, neverAborted].map((signal) => changes.next(signal))
    gone.abort(new Error('gone'))
    changes.announceOne()
    await expect(waits[0]).rejects.toThrow('gone')
    await waits[1]
    expect(await isPending(waits[2] ?? Promise.resolve())).toBe(true)
  })

  it('ends a wait by its signal', async () => {
    const changes = new Changes()
    const caller = new AbortController()
    const [aborted, other] = [changes.next(caller.signal), changes.next(neverAborted)]
    caller.abort(new Error('gone'))
    await expect(aborted).rejects.toThrow('gone')
    await expect(changes.next(caller.signal)).rejects.toThrow('gone')
    changes.announce()
    await other
  })
})
