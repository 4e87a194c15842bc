import { describe, expect, it } from 'vitest'
import type { FinishedSpan } from '../../../src/rpc/tracing/finished-span.ts'
import { Refused, SpanQueue } from '../../../src/rpc/tracing/span-queue.ts'
import { CALL } from '../../fixtures/spans.ts'
import { FakeClock } from '../../support/fakes/fake-clock.ts'
import { recordingLog } from '../../support/fakes/recording-log.ts'
import { settle } from '../../support/pending.ts'

function span(name: string): FinishedSpan {
  return { ...CALL, name }
}

function queueTo(send: (names: readonly string[], signal: AbortSignal) => Promise<void>) {
  const clock = new FakeClock()
  const { lines, log } = recordingLog()
  const batches: string[][] = []
  const sink = {
    name: 'sink',
    send: (spans: readonly FinishedSpan[], signal: AbortSignal) => {
      const names = spans.map(({ name }) => name)
      batches.push(names)
      return send(names, signal)
    },
    close: () => {},
  }
  const queue = new SpanQueue(sink, { log, startTimer: (ms, expired) => clock.startTimer(ms, expired) })
  const pass = async (ms: number) => {
    clock.advance(ms)
    await settle()
  }
  return { queue, pass, batches, lines, clock }
}

const untilAborted = (_names: readonly string[], signal: AbortSignal) =>
  new Promise<void>((_resolve, reject) => signal.addEventListener('abort', () => reject(signal.reason)))

describe('a queue of spans', () => {
  it('gathers them for 200 ms, and has no timer without any', async () => {
    const { queue, pass, batches, clock } = queueTo(async () => {})
    expect(clock.sleeping).toBe(0)
    queue.add(span('a'))
    queue.add(span('b'))
    await pass(199)
    expect(batches).toEqual([])
    await pass(1)
    expect(batches).toEqual([['a', 'b']])
    expect(clock.sleeping).toBe(0)
  })

  it('sends them again 5 s after a failure, which it logs once', async () => {
    let failures = 2
    const { queue, pass, batches, lines } = queueTo(async () => {
      failures -= 1
      if (failures >= 0) throw new Error('ECONNREFUSED')
    })
    queue.add(span('a'))
    await pass(200)
    await pass(4999)
    expect(batches).toHaveLength(1)
    await pass(1)
    await pass(5000)
    expect(batches).toEqual([['a'], ['a'], ['a']])
    expect(queue.dropped).toBe(0)
    const fields = { to: 'sink', error: 'ECONNREFUSED' }
    expect(lines).toEqual([{ level: 'warn', message: 'trace spans not sent', fields }])
  })

  it('waits 10 s for an answer', async () => {
    const { queue, pass, batches, lines } = queueTo(untilAborted)
    queue.add(span('a'))
    await pass(200)
    await pass(10_000)
    expect(lines).toMatchObject([{ fields: { error: 'no answer within 10 s' } }])
    await pass(5000)
    expect(batches).toEqual([['a'], ['a']])
  })

  it('drops spans that are refused, and those beyond 2,048', async () => {
    const { queue, pass, batches } = queueTo(async () => {
      throw new Refused('HTTP status 400')
    })
    for (let number = 0; number < 3000; number++) queue.add(span('a'))
    expect(queue.dropped).toBe(952)
    await pass(200)
    for (let turn = 0; turn < 8; turn++) await pass(1)
    expect(batches.map(({ length }) => length)).toEqual(Array.from({ length: 8 }, () => 256))
    expect(queue.dropped).toBe(3000)
  })

  it('sends the rest at the end, and waits 1 s for it', async () => {
    const { queue, pass, batches, lines } = queueTo(untilAborted)
    queue.add(span('a'))
    await pass(200)
    queue.add(span('b'))
    const stopped = queue.stop()
    await pass(1000)
    await stopped
    queue.add(span('late'))
    expect(batches).toEqual([['a']])
    expect(lines).toMatchObject([
      { message: 'trace spans not sent', fields: { error: 'the process stops' } },
      { message: 'trace spans dropped', fields: { to: 'sink', count: 2 } },
    ])
    const quick = queueTo(async () => {})
    quick.queue.add(span('a'))
    await quick.queue.stop()
    expect(quick.batches).toEqual([['a']])
  })
})
