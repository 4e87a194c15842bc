import { describe, expect, it } from 'vitest'
import { CallsInFlight } from '../../../src/agent/service/calls-in-flight.ts'
import { serviceMethods } from '../../../src/agent/service/services.ts'
import { cancelled, neverAborted } from '../../../src/base/abort.ts'
import { AddSwapRequest, RemoveContainerRequest, WaitProcessRequest } from '../../../src/gen/agent.ts'
import { Totals } from '../../../src/rpc/limits.ts'
import type { IncomingCall, Outcome } from '../../../src/rpc/method.ts'
import { keptOutcomes } from '../../support/agent/kept-outcomes.ts'
import { serviceDependencies } from '../../support/agent/service-dependencies.ts'
import { FakeClock } from '../../support/fakes/fake-clock.ts'
import { recordingLog } from '../../support/fakes/recording-log.ts'
import { settle } from '../../support/pending.ts'

const incoming: IncomingCall = {
  ...{ timeoutMs: undefined, hangup: neverAborted, peer: 'vsock 2:9', framing: 'ttrpc' },
  ...{ number: undefined, ageMs: 0 },
}

async function services(gate = { isOpen: true, wait: async () => {} }) {
  const clock = new FakeClock()
  const { lines, log } = recordingLog()
  const nowMs = () => clock.monotonicMs()
  const calls = new CallsInFlight({ log, nowMs, startTimer: (ms, expired) => clock.startTimer(ms, expired) })
  const dependencies = await serviceDependencies()
  const methods = serviceMethods(dependencies, {
    log,
    gate,
    totals: new Totals(),
    calls,
    outcomes: keptOutcomes(dependencies.sandbox),
    nowMs,
  })
  const call = (name: string, request: Uint8Array, options: Partial<IncomingCall> = {}): Promise<Outcome> => {
    const method = methods.get(`grpc.AgentService/${name}`)
    if (method === undefined) throw new Error(`${name}: no such method`)
    return method.serve(request, { ...incoming, ...options })
  }
  const inProgress = () => lines.filter(({ message }) => message === 'rpc in progress')
  return { clock, calls, call, lines, inProgress, os: dependencies.os }
}

const swap = AddSwapRequest.encode(AddSwapRequest.fromPartial({ PCIPath: [2] })).finish()

describe('a call in flight', () => {
  it('names the step that it is in until it is over', async () => {
    const { calls, call, os } = await services()
    const outcome = call('AddSwap', swap)
    await settle()
    expect(calls.list()).toMatchObject([
      { rpc: 'grpc.AgentService/AddSwap', hasCaller: true, steps: [{ name: 'device' }] },
    ])
    expect(calls.list()[0]?.steps[0]?.detail).toContain('02')
    os.clock.advance(60_000)
    await settle()
    os.clock.advance(60_000)
    await outcome
    expect(calls.list()).toEqual([])
  })

  it('is logged after 5 s, 30 s and 5 min with its step, and leaves no timer', async () => {
    const { clock, call, inProgress } = await services({
      isOpen: false,
      wait: (signal?: AbortSignal) => aborted(signal),
    })
    const hangup = new AbortController()
    const request = RemoveContainerRequest.encode(
      RemoveContainerRequest.fromPartial({ containerId: 'c1' }),
    ).finish()
    const outcome = call('RemoveContainer', request, { hangup: hangup.signal })
    await settle()
    for (const ms of [4_999, 1, 25_000, 270_000, 3_600_000]) clock.advance(ms)
    expect(inProgress()).toMatchObject(
      [
        ['info', '5000'],
        ['warn', '30000'],
        ['warn', '300000'],
      ].map(([level, ms]) => ({
        level,
        fields: {
          rpc: 'grpc.AgentService/RemoveContainer',
          containerId: 'c1',
          step: 'boot',
          ms,
          peer: 'vsock 2:9',
        },
      })),
    )
    hangup.abort()
    await outcome
    expect(clock.sleeping).toBe(0)
  })

  it('stays in the table when its caller has left and its work continues', async () => {
    const { calls, clock, inProgress } = await services()
    const work = Promise.withResolvers<void>()
    const open = calls.begin({ name: 'grpc.AgentService/StartContainer', waits: false }, incoming)
    open.end('DEADLINE_EXCEEDED', work.promise)
    expect(calls.list()).toMatchObject([{ hasCaller: false }])
    await settle()
    clock.advance(5_000)
    expect(inProgress()).toMatchObject([{ fields: { caller: 'left' } }])
    work.resolve()
    await settle()
    expect(calls.list()).toEqual([])
  })

  it('has no timer and no line when it waits for a process', async () => {
    const { clock, call, inProgress } = await services({
      isOpen: false,
      wait: (signal?: AbortSignal) => aborted(signal),
    })
    const hangup = new AbortController()
    const outcome = call(
      'WaitProcess',
      WaitProcessRequest.encode(WaitProcessRequest.fromPartial({})).finish(),
      { hangup: hangup.signal },
    )
    await settle()
    expect(clock.sleeping).toBe(0)
    clock.advance(3_600_000)
    expect(inProgress()).toEqual([])
    hangup.abort()
    await outcome
  })

  it('has its turn of the loop measured, unless it is one of many short concurrent calls', async () => {
    const { calls, clock, inProgress } = await services()
    const measured = () => calls.figures.turns.counts.reduce((sum, count) => sum + count, 0)
    for (let n = 0; n < 100; n++) {
      calls.begin({ name: 'grpc.AgentService/CopyFile', waits: false }, incoming).end()
      await settle()
    }
    expect(measured()).toBe(1)
    // One timer serves all calls. It stays until it finds none.
    expect(clock.sleeping).toBe(1)
    clock.advance(5_000)
    expect(inProgress()).toEqual([])
    expect(clock.sleeping).toBe(0)
    calls.begin({ name: 'grpc.AgentService/CopyFile', waits: false }, incoming).end()
    await settle()
    expect(measured()).toBe(2)
    expect(clock.sleeping).toBe(0)
  })

  it('is logged when it hangs among short ones', async () => {
    const { calls, clock, inProgress } = await services()
    for (let n = 0; n < 10; n++) {
      calls.begin({ name: 'grpc.AgentService/CopyFile', waits: false }, incoming).end()
      await settle()
    }
    clock.advance(9)
    calls.begin({ name: 'grpc.AgentService/ReseedRandomDev', waits: false }, incoming)
    clock.advance(4_991)
    expect(inProgress()).toEqual([])
    clock.advance(9)
    expect(inProgress()).toMatchObject([{ fields: { rpc: 'grpc.AgentService/ReseedRandomDev', ms: '5000' } }])
  })

  it('is one of at most 16 that are logged at a time', async () => {
    const { calls, clock, lines, inProgress } = await services()
    for (let n = 0; n < 1000; n++) calls.begin({ name: 'grpc.AgentService/CopyFile', waits: false }, incoming)
    await settle()
    expect(clock.sleeping).toBe(1)
    clock.advance(5_000)
    expect(inProgress()).toHaveLength(16)
    expect(lines.at(-1)).toMatchObject({ message: 'more calls in progress', fields: { count: 984 } })
  })
})

function aborted(signal: AbortSignal | undefined): Promise<void> {
  return new Promise((_, reject) => signal?.addEventListener('abort', () => reject(cancelled())))
}
