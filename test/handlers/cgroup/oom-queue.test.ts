import { describe, expect, it } from 'vitest'
import { cancelled, neverAborted } from '../../../src/base/abort.ts'
import { silentLogger } from '../../../src/base/log.ts'
import { OomQueue } from '../../../src/handlers/cgroup/oom-queue.ts'

const queue = () => new OomQueue(silentLogger())

describe('OomQueue', () => {
  it('keeps events in order for later callers', async () => {
    const events = queue()
    events.add('a')
    events.add('b')
    expect([await events.take(neverAborted), await events.take(neverAborted)]).toEqual(['a', 'b'])
  })

  it('delivers each event to one waiting caller, the first one first', async () => {
    const events = queue()
    const takes = [events.take(neverAborted), events.take(neverAborted)]
    events.add('a')
    events.add('b')
    expect(await Promise.all(takes)).toEqual(['a', 'b'])
  })

  it('delivers nothing to an aborted caller, even when the event follows at once', async () => {
    const events = queue()
    const call = new AbortController()
    const aborted = events.take(call.signal)
    call.abort(cancelled())
    events.add('a')
    await expect(aborted).rejects.toMatchObject({ code: 'CANCELLED' })
    expect(await events.take(neverAborted)).toBe('a')
    await expect(events.take(AbortSignal.abort(cancelled()))).rejects.toMatchObject({ code: 'CANCELLED' })
  })

  it('delivers a requeued event before all others', async () => {
    const events = queue()
    for (const id of ['a', 'b']) events.add(id)
    events.requeue(await events.take(neverAborted))
    expect([await events.take(neverAborted), await events.take(neverAborted)]).toEqual(['a', 'b'])
    const waiting = events.take(neverAborted)
    events.requeue('a')
    expect(await waiting).toBe('a')
  })

  it('keeps the first 100 events', async () => {
    const events = queue()
    for (let number = 0; number < 150; number++) events.add(String(number))
    const taken = await Promise.all(Array.from({ length: 100 }, () => events.take(neverAborted)))
    expect([taken[0], taken[99]]).toEqual(['0', '99'])
    const next = events.take(neverAborted)
    events.add('after')
    expect(await next).toBe('after')
  })

  it('rejects all waiting callers when it is closed: INTERNAL, without text', async () => {
    const events = queue()
    const waiting = [events.take(neverAborted), events.take(neverAborted)]
    events.close()
    for (const take of [...waiting, events.take(neverAborted)]) {
      await expect(take).rejects.toMatchObject({ code: 'INTERNAL', message: '' })
    }
  })

  it('is empty when it is opened again', async () => {
    const events = queue()
    events.add('old')
    events.close()
    events.add('dead')
    events.requeue('dead')
    events.open()
    const next = events.take(neverAborted)
    events.add('new')
    expect(await next).toBe('new')
  })
})
