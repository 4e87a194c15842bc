import { beforeEach, describe, expect, it, vi } from 'vitest'
import { kernelError } from '../../src/os/errors.ts'
import type { RequestState } from '../../src/os/supervisor/broker-messages.ts'
import type { Taken } from '../../src/state/request.ts'
import { EMPTY_RESPONSE, RequestJournal, type ValueKinds } from '../../src/state/request-journal.ts'
import { StateStore, UnreadableState } from '../../src/state/state-store.ts'
import { MemoryStateFiles } from '../support/fakes/files/memory-state-files.ts'
import { recordingLog } from '../support/fakes/recording-log.ts'
import { FakeRequests } from '../support/handlers/fake-requests.ts'
import { isPending, settle } from '../support/pending.ts'

/** The states of requests of the time before: sent again, delivered, dropped, and answered by the agent that died. */
const STATES = new Map<bigint, RequestState>([
  [1n, 'open'],
  [2n, 'written'],
  [3n, 'dropped'],
  [4n, 'answered'],
])

describe('RequestJournal', () => {
  let files: MemoryStateFiles
  let told: string[]
  const { log, lines } = recordingLog()

  beforeEach(() => {
    files = new MemoryStateFiles()
    told = []
    lines.length = 0
    source = new FakeRequests()
  })

  /** Something that notes what becomes of the answer that takes it. */
  const taken = (name: string): Taken => ({
    delivered: () => told.push(`${name} delivered`),
    dropped: () => told.push(`${name} dropped`),
  })
  const kinds: ValueKinds = {
    exit: taken,
    outOfMemory: ({ containerId }) => taken(containerId),
  }
  let source = new FakeRequests()
  const journal = () => new RequestJournal(new StateStore(files), log, source)
  /** A call, and what it takes. */
  const callOf = (number: bigint) => {
    const takes: Taken[] = []
    return { number, takes: (one: Taken) => void takes.push(one), all: takes }
  }
  const tell = (call: ReturnType<typeof callOf>, how: keyof Taken) => {
    for (const one of call.all) one[how]()
  }

  it.each(['delivered', 'dropped'] as const)('keeps what a call takes until its answer is %s', (how) => {
    const call = callOf(9n)
    const requests = journal()
    requests.take(call, { exit: 'p1' }, taken('p1'))
    expect([requests.of(9n)?.exit, files.names()]).toEqual(['p1', ['requests/9']])
    tell(call, how)
    expect([requests.of(9n), files.names(), told]).toEqual([undefined, [], [`p1 ${how}`]])
  })

  it.each(['delivered', 'dropped'] as const)('leaves an answer to a record until it is %s', (how) => {
    const [left, kept, late] = [callOf(7n), callOf(8n), callOf(9n)]
    const requests = journal()
    for (const call of [left, kept, late, callOf(0n)]) requests.answerByRecord(call)
    expect(files.names()).toEqual([])
    requests.keep(8n)
    requests.keep(8n)
    requests.keep(0n)
    tell(late, how)
    requests.keep(9n)
    expect([files.names(), requests.of(8n)?.response]).toEqual([['requests/8'], EMPTY_RESPONSE])
    tell(kept, how)
    tell(left, how)
    expect(files.names()).toEqual([])
  })

  it('records nothing of a request that is not sent again, and tells of it all the same', () => {
    const call = callOf(0n)
    journal().take(call, { exit: 'p1' }, taken('p1'))
    journal().answer(call, new Uint8Array(1))
    expect(files.names()).toEqual([])
    tell(call, 'dropped')
    expect(told).toEqual(['p1 dropped'])
  })

  it('throws when a value cannot be recorded, which is dropped with its call', () => {
    files.beforeChange = (path) => {
      throw kernelError('write', path, 'ENOSPC')
    }
    const call = callOf(9n)
    const requests = journal()
    expect(() => requests.take(call, { exit: 'p1' }, taken('p1'))).toThrow('ENOSPC')
    expect(requests.of(9n)).toBeUndefined()
    tell(call, 'dropped')
    expect(told).toEqual(['p1 dropped'])
  })

  it('keeps nothing of a call whose caller has left', () => {
    journal().answer({ number: 9n, takes: (one) => one.dropped() }, new Uint8Array(0))
    expect(files.names()).toEqual([])
  })

  it('answers again what the previous agent carried out, and what this one ends', async () => {
    journal().answer(callOf(1n), new Uint8Array([8, 1]))
    const requests = successor()
    expect(await requests.answerTo(1n)).toEqual(new Uint8Array([8, 1]))
    requests.resume(4n, Promise.reject(new Error('no')))
    requests.resume(5n, Promise.resolve())
    requests.resume(0n, Promise.resolve())
    await expect(requests.answerTo(4n)).rejects.toThrow('no')
    expect([await requests.answerTo(5n), requests.answerTo(0n)]).toEqual([EMPTY_RESPONSE, undefined])
    expect(requests.answerTo(2n)).toBeUndefined()
    requests.done(1n)
    requests.done(3n)
    expect(files.names()).toEqual(['requests/1'])
  })

  it.each([
    ['is written', 'written', 'four delivered'],
    ['is dropped', 'dropped', 'four dropped'],
  ] as const)('settles what is not sent again, as the answer that is on its way %s', (_what, end, last) => {
    for (const [number, name] of [
      [1n, 'one'],
      [2n, 'two'],
      [3n, 'three'],
      [4n, 'four'],
      [5n, 'five'],
      [10n, 'ten'],
    ] as const) {
      journal().take(callOf(number), number > 3n ? { exit: name } : outOfMemory(name), taken(''))
    }
    const requests = successor(new Map([...STATES].slice(1)))
    requests.restore(kinds)
    source.settle(4n, end)
    expect(source.confirmed).toEqual([2n, 3n, 4n])
    // The latest first: what is dropped returns to the front of a queue.
    const first = ['ten dropped', 'five dropped']
    expect(told).toEqual([...first, 'three dropped', 'two delivered', 'one dropped', last])
    expect([files.names(), lines]).toEqual([[], []])
  })

  it.each(['delivered', 'dropped'] as const)('gives a request that is sent again what it had: %s', (how) => {
    journal().take(callOf(1n), outOfMemory('c1'), taken(''))
    const requests = successor()
    const call = callOf(1n)
    // It may come before all is restored.
    requests.begin(call)
    requests.restore(kinds)
    expect([requests.of(1n)?.outOfMemory?.containerId, told]).toEqual(['c1', []])
    requests.take(call, outOfMemory('c1'), taken('again'))
    tell(call, how)
    tell(call, how)
    // The framing confirms it, once all that the answer takes was told.
    expect(source.confirmed).not.toContain(1n)
    expect(told.slice(0, 2)).toEqual([`c1 ${how}`, `again ${how}`])
    expect(files.names()).toEqual([])
  })

  it('delivers once more what an agent has delivered in its last moment', () => {
    const call = callOf(2n)
    journal().take(call, { exit: 'p1' }, taken('p1'))
    files.beforeChange = () => {
      throw new Error('dead')
    }
    expect(() => tell(call, 'delivered')).toThrow('dead')
    files.beforeChange = () => {}
    successor().restore(kinds)
    expect(told).toEqual(['p1 delivered', 'p1 delivered'])
  })

  it('settles the others when one cannot be read or told, and refuses that one by its name', () => {
    journal().take(callOf(2n), { exit: 'p2' }, taken(''))
    files.write('requests/1', Buffer.from('garbage'))
    files.write('requests/3', Buffer.from('garbage'))
    const requests = successor()
    requests.settle(3n, {
      ...taken(''),
      dropped: () => {
        throw new Error('EIO')
      },
    })
    requests.restore(kinds)
    expect([told, files.names()]).toEqual([['p2 delivered'], ['requests/1']])
    expect(lines.map(({ message }) => message).toSorted()).toEqual([
      'delivery not recorded',
      'value taken by a request lost',
      'value taken by a request lost',
    ])
    expect(lines.map(({ fields }) => fields)).toMatchObject([
      { request: '3', error: 'EIO' },
      { error: expect.stringContaining('requests/3') },
      { error: expect.stringContaining('requests/1') },
    ])
    expect(() => requests.answerTo(1n)).toThrow(UnreadableState)
    expect(() => requests.answerTo(1n)).toThrow('state requests/1: ')
  })

  it('takes nothing from an answer of which only the bytes were recorded', () => {
    journal().answer(callOf(2n), new Uint8Array([8, 1]))
    successor().restore(kinds)
    expect([told, files.names()]).toEqual([[], []])
  })

  it('settles what another record says that requests have taken', () => {
    const requests = successor()
    requests.settleAll({ taken: [2n, 3n].map((number) => [number, taken(`${number}`)] as const) })
    expect(told).toEqual(['2 delivered', '3 dropped'])
  })

  it('takes over nothing for a request that is new', () => {
    const call = callOf(9n)
    successor().begin(call)
    expect(call.all).toEqual([])
  })

  it('leaves it to the caller that work of the previous agent fails, if one comes', async () => {
    const unhandled = vi.fn<() => void>()
    process.on('unhandledRejection', unhandled)
    journal().resume(4n, Promise.reject(new Error('no')))
    await settle()
    process.off('unhandledRejection', unhandled)
    expect(unhandled).not.toHaveBeenCalled()
  })

  it('knows when all that is sent again has its answers', async () => {
    const requests = successor(
      new Map([
        [1n, 'open'],
        [6n, 'open'],
        [7n, 'answered'],
      ]),
    )
    const settled = requests.settled()
    const call = callOf(1n)
    requests.begin(call)
    tell(call, 'delivered')
    expect(await isPending(settled)).toBe(true)
    source.settle(6n, 'dropped')
    expect(await isPending(settled)).toBe(false)
  })

  it('drops at once what is restored for a request that came again and has failed', () => {
    const requests = successor()
    const call = callOf(1n)
    requests.begin(call)
    tell(call, 'dropped')
    requests.settle(1n, taken('one'))
    expect([told, requests.isSentAgain(1n), lines]).toEqual([['one dropped'], false, []])
  })

  it('confirms nothing before all is restored', () => {
    const requests = successor()
    source.settle(4n, 'written')
    expect(source.confirmed).toEqual([])
    requests.restore(kinds)
    expect(source.confirmed).toEqual([2n, 3n, 4n])
  })

  /** The journal of the next agent. */
  function successor(states = STATES): RequestJournal {
    source = new FakeRequests(states)
    const requests = journal()
    requests.read()
    return requests
  }

  function outOfMemory(containerId: string) {
    return { outOfMemory: { containerId, kills: 1n, key: containerId, createdNs: 9n } }
  }
})
