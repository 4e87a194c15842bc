import { describe, expect, it } from 'vitest'
import { cancelled } from '../../../src/base/abort.ts'
import { silentLogger } from '../../../src/base/log.ts'
import { OomQueue } from '../../../src/handlers/cgroup/oom-queue.ts'
import { StateStore } from '../../../src/state/state-store.ts'
import { MemoryStateFiles } from '../../support/fakes/files/memory-state-files.ts'
import { callOf, numbered } from '../../support/handlers/call.ts'

const queue = (files = new MemoryStateFiles()) => new OomQueue(silentLogger(), new StateStore(files))

describe('OomQueue', () => {
  it('keeps events in order for later callers', async () => {
    const events = queue()
    events.add('a', 1n)
    events.add('b', 1n)
    expect([await events.take(callOf()), await events.take(callOf())]).toEqual(['a', 'b'])
  })

  it('delivers each event to one waiting caller, the first one first', async () => {
    const events = queue()
    const takes = [events.take(callOf()), events.take(callOf())]
    events.add('a', 1n)
    events.add('b', 1n)
    expect(await Promise.all(takes)).toEqual(['a', 'b'])
  })

  it('delivers nothing to an aborted caller, even when the event follows at once', async () => {
    const events = queue()
    const call = new AbortController()
    const aborted = events.take(callOf(call.signal))
    call.abort(cancelled())
    events.add('a', 1n)
    await expect(aborted).rejects.toMatchObject({ code: 'CANCELLED' })
    expect(await events.take(callOf())).toBe('a')
    await expect(events.take(callOf(AbortSignal.abort(cancelled())))).rejects.toMatchObject({
      code: 'CANCELLED',
    })
  })

  it('delivers a requeued event before all others', async () => {
    const events = queue()
    for (const id of ['a', 'b']) events.add(id, 1n)
    events.settle(0n, await events.take(callOf()), false)
    expect([await events.take(callOf()), await events.take(callOf())]).toEqual(['a', 'b'])
    const waiting = events.take(callOf())
    events.settle(0n, 'a', false)
    expect(await waiting).toBe('a')
  })

  it('keeps the first 100 events', async () => {
    const events = queue()
    for (let number = 0; number < 150; number++) events.add(String(number), 1n)
    const taken = await Promise.all(Array.from({ length: 100 }, () => events.take(callOf())))
    expect([taken[0], taken[99]]).toEqual(['0', '99'])
    const next = events.take(callOf())
    events.add('after', 1n)
    expect(await next).toBe('after')
  })

  it('rejects all waiting callers when it is closed: INTERNAL, without text', async () => {
    const events = queue()
    const waiting = [events.take(callOf()), events.take(callOf())]
    events.close()
    for (const take of [...waiting, events.take(callOf())]) {
      await expect(take).rejects.toMatchObject({ code: 'INTERNAL', message: '' })
    }
  })

  it('is empty when it is opened again', async () => {
    const events = queue()
    events.add('old', 1n)
    events.close()
    events.add('dead', 1n)
    events.settle(0n, 'dead', false)
    events.open()
    const next = events.take(callOf())
    events.add('new', 1n)
    expect(await next).toBe('new')
  })
})

describe('an OomQueue after another one', () => {
  it('goes on with the events that waited, and with those whose answers were not delivered', async () => {
    const files = new MemoryStateFiles()
    const before = queue(files)
    const waiting = before.take(numbered(1n))
    for (const id of ['a', 'b', 'c', 'd', 'e']) before.add(id, 1n)
    await waiting
    for (const number of [2n, 3n, 4n]) await before.take(numbered(number))
    before.settle(4n, 'd', true)
    const after = queue(files)
    after.restore((number, act) => {
      if (number !== 1n) act(number === 2n ? 'dropped' : 'written')
    })
    // The request that is sent again gets the same event.
    expect(await after.take(numbered(1n))).toBe('a')
    expect([await after.take(callOf()), await after.take(callOf())]).toEqual(['b', 'e'])
  })

  it('is empty after a close', () => {
    const files = new MemoryStateFiles()
    const before = queue(files)
    before.add('a', 1n)
    before.close()
    expect(files.names()).toEqual([])
  })
})
