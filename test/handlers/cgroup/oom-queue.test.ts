import { describe, expect, it } from 'vitest'
import { cancelled } from '../../../src/base/abort.ts'
import { silentLogger } from '../../../src/base/log.ts'
import { OomQueue } from '../../../src/handlers/cgroup/oom-queue.ts'
import { ContainerNames } from '../../../src/handlers/container/container-names.ts'
import type { RequestState } from '../../../src/os/supervisor/broker-messages.ts'
import type { Taken } from '../../../src/state/request.ts'
import { RequestJournal } from '../../../src/state/request-journal.ts'
import { StateStore } from '../../../src/state/state-store.ts'
import { MemoryStateFiles } from '../../support/fakes/files/memory-state-files.ts'
import { callOf, numbered } from '../../support/handlers/call.ts'
import { FakeRequests } from '../../support/handlers/fake-requests.ts'

function queue(files = new MemoryStateFiles(), states = new Map<bigint, RequestState>()) {
  const [log, state] = [silentLogger(), new StateStore(files)]
  const requests = new RequestJournal(state, log, new FakeRequests(states))
  return { requests, events: new OomQueue(log, { state, requests, names: new ContainerNames(state) }) }
}

function eventOf(containerId: string, kills: bigint, createdNs = 1n) {
  return { containerId, kills, key: containerId, createdNs }
}

/** A call whose answer's fate the test decides. */
function answerable(number = 0n) {
  const taken: Taken[] = []
  const call = { ...numbered(number), takes: (one: Taken) => void taken.push(one) }
  return {
    call,
    delivered: () => {
      for (const one of taken) one.delivered()
    },
    dropped: () => {
      for (const one of taken) one.dropped()
    },
  }
}

describe('OomQueue', () => {
  it('keeps events in order for later callers', async () => {
    const { events } = queue()
    events.add(eventOf('a', 1n))
    events.add(eventOf('b', 1n))
    expect([await events.take(callOf()), await events.take(callOf())]).toEqual(['a', 'b'])
  })

  it('delivers each event to one waiting caller, the first one first', async () => {
    const { events } = queue()
    const takes = [events.take(callOf()), events.take(callOf())]
    events.add(eventOf('a', 1n))
    events.add(eventOf('b', 1n))
    expect(await Promise.all(takes)).toEqual(['a', 'b'])
  })

  it('delivers nothing to an aborted caller, even when the event follows at once', async () => {
    const { events } = queue()
    const call = new AbortController()
    const aborted = events.take(callOf(call.signal))
    call.abort(cancelled())
    events.add(eventOf('a', 1n))
    await expect(aborted).rejects.toMatchObject({ code: 'CANCELLED' })
    expect(await events.take(callOf())).toBe('a')
    await expect(events.take(callOf(AbortSignal.abort(cancelled())))).rejects.toMatchObject({
      code: 'CANCELLED',
    })
  })

  it('delivers a requeued event before all others', async () => {
    const { events } = queue()
    for (const id of ['a', 'b']) events.add(eventOf(id, 1n))
    const [lost, again] = [answerable(), answerable()]
    await events.take(lost.call)
    lost.dropped()
    expect([await events.take(again.call), await events.take(callOf())]).toEqual(['a', 'b'])
    const waiting = events.take(callOf())
    again.dropped()
    expect(await waiting).toBe('a')
  })

  it('keeps the first 100 events', async () => {
    const { events } = queue()
    for (let number = 0; number < 150; number++) events.add(eventOf(String(number), 1n))
    const taken = await Promise.all(Array.from({ length: 100 }, () => events.take(callOf())))
    expect([taken[0], taken[99]]).toEqual(['0', '99'])
    const next = events.take(callOf())
    events.add(eventOf('after', 1n))
    expect(await next).toBe('after')
  })

  it('rejects all waiting callers when it is closed: INTERNAL, without text', async () => {
    const { events } = queue()
    const waiting = [events.take(callOf()), events.take(callOf())]
    events.close()
    for (const take of [...waiting, events.take(callOf())]) {
      await expect(take).rejects.toMatchObject({ code: 'INTERNAL', message: '' })
    }
  })

  it('is empty when it is opened again', async () => {
    const { events } = queue()
    const lost = answerable()
    for (const id of ['old', 'older']) events.add(eventOf(id, 1n))
    await events.take(lost.call)
    events.close()
    events.add(eventOf('dead', 1n))
    lost.dropped()
    events.open()
    const next = events.take(callOf())
    events.add(eventOf('new', 1n))
    expect(await next).toBe('new')
  })
})

describe('an OomQueue of the next agent', () => {
  it('continues with the waiting events, and with those whose answers were not delivered', async () => {
    const files = new MemoryStateFiles()
    const { events: before } = queue(files)
    const waiting = before.take(numbered(1n))
    for (const id of ['a', 'b', 'c', 'd', 'e']) before.add(eventOf(id, 1n))
    await waiting
    const delivered = answerable(4n)
    for (const call of [numbered(2n), numbered(3n), delivered.call]) await before.take(call)
    delivered.delivered()
    const after = successor(files, { 1: 'open', 2: 'dropped', 3: 'written' })
    // The repeated request gets the same event.
    expect(await after.take(numbered(1n))).toBe('a')
    expect([await after.take(callOf()), await after.take(callOf())]).toEqual(['b', 'e'])
    expect(files.names()).toEqual(['oom', 'requests/1'])
  })

  it.each([
    ['open', ['a', 'a']],
    ['written', ['a']],
    ['dropped', ['a', 'a']],
  ] as const)('has an event once when its delivery was half recorded (%s)', async (state, left) => {
    const files = new MemoryStateFiles()
    const { events: before } = queue(files)
    before.add(eventOf('a', 1n))
    before.add(eventOf('a', 2n))
    files.beforeChange = (name) => {
      if (name === 'oom') throw new Error('dead')
    }
    await before.take(numbered(1n))
    files.beforeChange = () => {}
    const after = successor(files, { 1: state })
    after.add(eventOf('end', 1n))
    const taken = state === 'open' ? [await after.take(numbered(1n))] : []
    while (taken.at(-1) !== 'end') taken.push(await after.take(callOf()))
    expect(taken).toEqual([...left, 'end'])
  })

  it('distinguishes the events of a container from those of an earlier one with its id', async () => {
    const files = new MemoryStateFiles()
    const { events: before } = queue(files)
    before.add(eventOf('a', 1n))
    await before.take(numbered(1n))
    before.add(eventOf('a', 2n))
    before.add(eventOf('a', 1n, 2n))
    const after = successor(files, { 1: 'dropped' })
    expect(after.killsOf({ key: 'a', createdNs: 2n }, 0n)).toBe(1n)
    expect(after.killsOf({ key: 'a', createdNs: 3n }, 0n)).toBe(0n)
    after.add(eventOf('end', 1n))
    const taken: string[] = []
    while (taken.at(-1) !== 'end') taken.push(await after.take(callOf()))
    expect(taken).toEqual(['a', 'a', 'a', 'end'])
  })

  function successor(files: MemoryStateFiles, states: Readonly<Record<number, RequestState>>): OomQueue {
    const numbers = Object.entries(states).map(([number, state]) => [BigInt(number), state] as const)
    const { requests, events } = queue(files, new Map(numbers))
    requests.read()
    events.restore()
    const none = { delivered: () => {}, dropped: () => {} }
    requests.restore({ outOfMemory: (event) => events.taken(event), exit: () => none })
    return events
  }

  it('is empty after a close', () => {
    const files = new MemoryStateFiles()
    const { events: before } = queue(files)
    before.add(eventOf('a', 1n))
    before.close()
    expect(files.names()).toEqual([])
  })
})
