import { beforeEach, describe, expect, it } from 'vitest'
import type { Check } from '../../../src/agent/policy/policy.ts'
import { Refusal } from '../../../src/agent/policy/verdict.ts'
import { KeptOutcomes, type OutcomeContext } from '../../../src/agent/service/kept-outcomes.ts'
import { cancellable, finishing, type MessageType, type Rpc, taking } from '../../../src/agent/service/rpc.ts'
import { wrap } from '../../../src/agent/service/wrapper.ts'
import { neverAborted } from '../../../src/base/abort.ts'
import { AgentError } from '../../../src/base/errors.ts'
import { LIMITS, Totals } from '../../../src/rpc/limits.ts'
import type { IncomingCall, Outcome } from '../../../src/rpc/method.ts'
import type { Call } from '../../../src/state/request.ts'
import { RequestJournal } from '../../../src/state/request-journal.ts'
import { StateStore } from '../../../src/state/state-store.ts'
import { silentCalls } from '../../support/agent/calls-in-flight.ts'
import { MemoryStateFiles } from '../../support/fakes/files/memory-state-files.ts'
import { recordingLog } from '../../support/fakes/recording-log.ts'
import { FakeRequests } from '../../support/handlers/fake-requests.ts'
import { isPending, settle } from '../../support/pending.ts'

type Message = { readonly text: string }

const json: MessageType<Message> = {
  encode: (message) => ({ finish: () => Buffer.from(JSON.stringify(message)) }),
  decode: (payload) => JSON.parse(Buffer.from(payload).toString()) as Message,
}

const request = Buffer.from(JSON.stringify({ text: 'do it' }))

function callWith(key: string, more: Partial<IncomingCall> = {}): IncomingCall {
  return {
    ...{ timeoutMs: undefined, hangup: neverAborted, peer: 'test', framing: 'grpc' },
    ...{ number: undefined, ageMs: 0 },
    metadata: (name) => (name === 'idempotency-key' ? key : undefined),
    ...more,
  }
}

describe('a call with an idempotency key', () => {
  let files: MemoryStateFiles
  let nowMs: number
  let check: Check | undefined
  /** Exits that the previous agent took for an answer. */
  let exits: string[]
  const { log: recorded, lines } = recordingLog()
  const log = { ...recorded, isLogged: () => true }

  beforeEach(() => {
    files = new MemoryStateFiles()
    nowMs = 0
    check = undefined
    exits = []
    lines.length = 0
  })

  /** An agent on the records of the one before it. */
  function agent(limits: Partial<OutcomeContext['limits']> = {}) {
    const state = new StateStore(files)
    const requests = new RequestJournal(state, log, new FakeRequests())
    const boottimeNs = () => BigInt(nowMs)
    const outcomes = new KeptOutcomes({
      ...{ state, requests, log, boottimeNs, nowMs: () => nowMs },
      limits: { ...LIMITS.keyed, ...limits },
    })
    outcomes.read()
    requests.read()
    requests.restore({
      exit: (key) => ({
        delivered: () => void exits.push(`${key} delivered`),
        dropped: () => void exits.push(`${key} dropped`),
      }),
      outOfMemory: () => ({ delivered: () => {}, dropped: () => {} }),
    })
    const totals = new Totals()
    const calls = silentCalls(() => nowMs)
    const policy = { checkOf: () => check ?? (() => undefined) }
    const gate = { isOpen: true, wait: async () => {} }
    const names = { bringUpToDate: () => {} }
    const serve = (rpc: Rpc<Message, Message>, name = 'grpc.AgentService/Test') =>
      wrap(
        { name, types: { request: json, response: json }, rpc },
        { log, gate, policy, totals, calls, requests, names, outcomes, nowMs: () => nowMs },
      )
    return { serve, totals, calls, requests, outcomes }
  }

  const textOf = (outcome: Outcome) =>
    outcome.ok
      ? JSON.parse(Buffer.from(outcome.payload).toString()).text
      : `${outcome.code}: ${outcome.message}`

  const deliver = (outcome: Outcome) => {
    if (outcome.ok) outcome.delivered?.(true)
    return textOf(outcome)
  }

  /** Each run answers with its number. */
  function counted() {
    const seen: Call[] = []
    const handle = async (_request: Message, call: Call) => {
      seen.push(call)
      return { text: `run ${seen.length}` }
    }
    return { seen, handle }
  }

  it('is forgotten ten minutes after its end, by this agent and by the next', async () => {
    const { handle } = counted()
    const rpc = finishing('idempotent', handle)
    const first = agent().serve(rpc)
    expect(textOf(await first(request, callWith('k')))).toBe('run 1')
    nowMs += LIMITS.keyed.ageMs - 1
    expect(textOf(await first(request, callWith('k')))).toBe('run 1')
    const next = agent().serve(rpc)
    nowMs += LIMITS.keyed.ageMs - 1
    expect(textOf(await next(request, callWith('k')))).toBe('run 1')
    expect(files.names()).toHaveLength(1)
    nowMs += 1
    expect(textOf(await next(request, callWith('k')))).toBe('run 2')
    expect(files.names()).toHaveLength(1)
  })

  it('is carried out by the next agent under the same number, when the first has died in it', async () => {
    const hung = agent().serve(finishing('idempotent', () => new Promise<never>(() => {})))
    void hung(request, callWith('k'))
    await settle()
    const { seen, handle } = counted()
    const later = agent()
    const number = BigInt(files.names()[0]?.split('/')[1] ?? 0)
    expect(later.requests.isSentAgain(number)).toBe(true)
    const serve = later.serve(finishing('idempotent', handle))
    expect(textOf(await serve(request, callWith('k')))).toBe('run 1')
    expect(seen.map((call) => [call.number, call.sentBefore])).toEqual([[number, true]])
    expect(textOf(await agent().serve(finishing('idempotent', handle))(request, callWith('k')))).toBe('run 1')
  })

  it('is not carried out again when the first agent had recorded its effect', async () => {
    let runs = 0
    const rpc = finishing<Message, Message>('at-most-once', async (_request, call) => {
      runs += 1
      call.beforeEffect()
      return await new Promise<never>(() => {})
    })
    void agent().serve(rpc)(request, callWith('k'))
    await settle()
    expect(await agent().serve(rpc)(request, callWith('k'))).toMatchObject({
      ok: true,
      payload: new Uint8Array(),
    })
    expect([runs, files.names().filter((name) => name.startsWith('requests'))]).toEqual([1, []])
  })

  it('takes an exit with its outcome, also when the agent dies right after that is kept', async () => {
    const first = agent()
    const rpc = taking<Message, Message>(async (_request, call) => {
      first.requests.take(call, { exit: 'p1' }, { delivered: () => {}, dropped: () => {} })
      return { text: 'exited' }
    })
    // Nothing that the first agent does after it has kept the outcome happens.
    const write = files.write.bind(files)
    const died = new MemoryStateFiles()
    let outcomes = 0
    files.write = (path, bytes) => {
      write(path, bytes)
      if (path.startsWith('outcomes/')) outcomes += 1
      if (outcomes !== 2) return
      for (const name of files.names()) died.write(name, files.read(name) ?? new Uint8Array())
    }
    await first.serve({ ...rpc, key: 'goes on' })(request, callWith('k'))
    files = died
    const next = agent().serve({ ...rpc, key: 'goes on' })
    expect(exits).toEqual(['p1 delivered'])
    expect(deliver(await next(request, callWith('k')))).toBe('exited')
    expect(files.names().map((name) => name.split('/')[0])).toEqual(['outcomes'])
  })

  it('abandons what it took for a caller that never comes back', async () => {
    const rpc = finishing<Message, Message>('at-most-once', async (_request, call) => {
      call.beforeEffect()
      return await new Promise<never>(() => {})
    })
    void agent().serve(rpc)(request, callWith('k'))
    await settle()
    const serve = agent().serve(finishing('idempotent', counted().handle))
    nowMs += LIMITS.keyed.ageMs
    await serve(request, callWith('other'))
    expect(files.names().map((name) => name.split('/')[0])).toEqual(['outcomes'])
  })

  it.each(['CANCELLED', 'DEADLINE_EXCEEDED', 'RESOURCE_EXHAUSTED', 'UNAVAILABLE'] as const)(
    'begins anew after %s',
    async (code) => {
      let runs = 0
      const serve = agent().serve(
        finishing<Message, Message>('journaled', async () => {
          runs += 1
          if (runs === 1) throw new AgentError(code, 'not now')
          return { text: 'done' }
        }),
      )
      expect(textOf(await serve(request, callWith('k')))).toBe(`${code}: not now`)
      expect(textOf(await serve(request, callWith('k')))).toBe('done')
    },
  )

  it('runs once when equal ones come at the same moment', async () => {
    check = async () => {}
    const { handle } = counted()
    const serve = agent().serve(finishing('journaled', handle))
    const outcomes = await Promise.all([serve(request, callWith('k')), serve(request, callWith('k'))])
    expect(outcomes.map(textOf)).toEqual(['run 1', 'run 1'])
  })

  it('is checked each time, without changing the policy’s state again', async () => {
    const asked: boolean[] = []
    let allows = true
    check = async (_request, call) => {
      asked.push(call.hasHappened === true)
      if (!allows) throw new Refusal('PERMISSION_DENIED', 'no')
    }
    const serve = agent().serve(finishing('journaled', counted().handle))
    expect(textOf(await serve(request, callWith('k')))).toBe('run 1')
    expect(textOf(await serve(request, callWith('k')))).toBe('run 1')
    expect(asked).toEqual([false, true])
    allows = false
    expect(textOf(await serve(request, callWith('k')))).toMatch(/^PERMISSION_DENIED/)
    allows = true
    expect(textOf(await serve(request, callWith('k')))).toBe('run 1')
  })

  it('leaves nothing when the policy refuses its first run', async () => {
    check = async () => {
      throw new Refusal('PERMISSION_DENIED', 'no')
    }
    const serve = agent().serve(finishing('journaled', counted().handle))
    expect(textOf(await serve(request, callWith('k')))).toMatch(/^PERMISSION_DENIED/)
    expect(files.names()).toEqual([])
    check = undefined
    expect(
      textOf(await agent().serve(finishing('journaled', counted().handle))(request, callWith('k'))),
    ).toBe('run 1')
  })

  it('answers its deadline, and goes on', async () => {
    const work = Promise.withResolvers<Message>()
    const serve = agent().serve(finishing('journaled', () => work.promise))
    expect(textOf(await serve(request, callWith('k', { timeoutMs: 5 })))).toMatch(/^DEADLINE_EXCEEDED/)
    const joined = serve(request, callWith('k'))
    expect(await isPending(joined)).toBe(true)
    work.resolve({ text: 'done' })
    expect(textOf(await joined)).toBe('done')
  })

  it('undoes itself at the first deadline where such a call does so', async () => {
    const undone: string[] = []
    const serve = agent().serve(
      cancellable<Message, Message>(
        'journaled',
        (_request, { signal }) =>
          new Promise((_, reject) =>
            signal.addEventListener('abort', () => {
              undone.push(signal.reason.code)
              reject(signal.reason)
            }),
          ),
      ),
    )
    expect(textOf(await serve(request, callWith('k', { timeoutMs: 5 })))).toMatch(/^DEADLINE_EXCEEDED/)
    expect([undone, files.names()]).toEqual([['DEADLINE_EXCEEDED'], []])
  })

  it('goes on without any caller, counted as a call whose caller has left', async () => {
    const work = Promise.withResolvers<Message>()
    const { serve, calls, totals } = agent()
    const method = serve(finishing('journaled', () => work.promise))
    const hangup = new AbortController()
    const first = method(request, callWith('k', { hangup: hangup.signal }))
    await settle()
    hangup.abort()
    expect(textOf(await first)).toMatch(/^CANCELLED/)
    expect(calls.list().map(({ hasCaller, hasKey }) => [hasCaller, hasKey])).toEqual([[false, true]])
    const used = () => totals.uses().find(({ name }) => name === 'bytes')?.used
    expect(used()).toBe(request.length)
    work.resolve({ text: 'done' })
    await settle()
    expect([calls.size, used(), textOf(await method(request, callWith('k')))]).toEqual([0, 0, 'done'])
  })

  it('ends with its last caller where it only waits, and waits anew', async () => {
    const waits: Call[] = []
    const exit = Promise.withResolvers<Message>()
    const rpc = taking<Message, Message>(
      async (_request, call) => {
        waits.push(call)
        return await Promise.race([
          exit.promise,
          new Promise<never>((_, reject) =>
            call.signal.addEventListener('abort', () => reject(call.signal.reason)),
          ),
        ])
      },
      { key: 'ends', turn: 'wait' },
    )
    const { serve, calls } = agent()
    const method = serve(rpc)
    const [one, two] = [new AbortController(), new AbortController()]
    const first = method(request, callWith('k', { hangup: one.signal }))
    await settle()
    const second = method(request, callWith('k', { hangup: two.signal }))
    await settle()
    one.abort()
    await first
    expect([await isPending(second), waits.length]).toEqual([true, 1])
    two.abort()
    const third = method(request, callWith('k'))
    await second
    await settle()
    expect([await isPending(third), waits.length, calls.size]).toEqual([true, 2, 1])
    exit.resolve({ text: 'status' })
    expect(textOf(await third)).toBe('status')
  })

  it('refuses more calls than may be kept while none has got its outcome', async () => {
    const { handle } = counted()
    const serve = agent({ outcomes: 2 }).serve(finishing('journaled', handle))
    const [one, two] = [await serve(request, callWith('1')), await serve(request, callWith('2'))]
    expect(textOf(await serve(request, callWith('3')))).toBe(
      'RESOURCE_EXHAUSTED: calls with an idempotency key: 2 of at most 2 kept',
    )
    deliver(two)
    expect(textOf(await serve(request, callWith('3')))).toBe('run 3')
    expect(textOf(await serve(request, callWith('1')))).toBe(deliver(one))
    expect(textOf(await serve(request, callWith('2')))).toBe('run 4')
  })

  it('keeps at most so many bytes, and says what it has not kept', async () => {
    const text = 'x'.repeat(50)
    const serve = agent({ outcomeBytes: 100, totalBytes: 150 }).serve(
      finishing<Message, Message>('journaled', async (one) => ({
        text: one.text === 'long' ? `${text}${text}` : text,
      })),
    )
    const of = (word: string) => Buffer.from(JSON.stringify({ text: word }))
    deliver(await serve(of('a'), callWith('a')))
    await serve(of('b'), callWith('b'))
    const notKept = (key: string, bytes: number, most: number) =>
      `FAILED_PRECONDITION: idempotency-key: the answer to "${key}" of ${bytes} bytes was not kept, want at most ${most}`
    expect(textOf(await serve(of('c'), callWith('c')))).toBe(text)
    // The oldest one that was delivered has made room.
    expect(textOf(await serve(of('d'), callWith('a')))).toBe(text)
    expect(textOf(await serve(of('d'), callWith('a')))).toBe(notKept('a', 61, 150))
    expect(textOf(await serve(of('long'), callWith('l')))).toBe(`${text}${text}`)
    expect(textOf(await serve(of('long'), callWith('l')))).toBe(notKept('l', 111, 100))
    expect(textOf(await serve(of('b'), callWith('b')))).toBe(text)
  })

  it('does not begin when its record cannot be written', async () => {
    const { seen, handle } = counted()
    const serve = agent().serve(finishing('journaled', handle))
    files.beforeChange = () => {
      files.beforeChange = () => {}
      throw new AgentError('RESOURCE_EXHAUSTED', 'no room')
    }
    expect(textOf(await serve(request, callWith('k')))).toBe('RESOURCE_EXHAUSTED: no room')
    expect(seen).toEqual([])
    expect(textOf(await serve(request, callWith('k')))).toBe('run 1')
  })

  it('logs each repetition as one', async () => {
    const serve = agent().serve(finishing('journaled', counted().handle))
    await serve(request, callWith('k'))
    await serve(request, callWith('k'))
    await serve(request, callWith('x'.repeat(129)))
    const told = lines.map(({ fields }) => [fields?.code, fields?.repeated])
    expect(told).toEqual([
      ['OK', undefined],
      ['OK', true],
      ['INVALID_ARGUMENT', false],
    ])
  })
})
