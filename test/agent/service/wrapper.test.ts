import { describe, expect, it } from 'vitest'
import type { Check } from '../../../src/agent/policy/policy.ts'
import { Refusal } from '../../../src/agent/policy/verdict.ts'
import { cancellable, type Gate, type MessageType, type Rpc } from '../../../src/agent/service/rpc.ts'
import { wrap } from '../../../src/agent/service/wrapper.ts'
import { cancelled, neverAborted } from '../../../src/base/abort.ts'
import { AgentError } from '../../../src/base/errors.ts'
import { jsonLogger } from '../../../src/base/log.ts'
import { LIMITS, Totals } from '../../../src/rpc/limits.ts'
import type { IncomingCall } from '../../../src/rpc/method.ts'
import type { Call, Taken } from '../../../src/state/request.ts'
import { RequestJournal, type RequestSource } from '../../../src/state/request-journal.ts'
import { StateStore } from '../../../src/state/state-store.ts'
import { silentCalls } from '../../support/agent/calls-in-flight.ts'
import { keptOutcomes } from '../../support/agent/kept-outcomes.ts'
import { MemoryStateFiles } from '../../support/fakes/files/memory-state-files.ts'
import { FakeRequests } from '../../support/handlers/fake-requests.ts'
import { type LogLine, parseLogLine } from '../../support/log-lines.ts'
import { turns } from '../../support/rpc/fake-methods.ts'

type Message = { readonly containerId: string; readonly env?: readonly string[] }

const json: MessageType<Message> = {
  encode: (message) => ({ finish: () => Buffer.from(JSON.stringify(message)) }),
  decode: (payload) => JSON.parse(Buffer.from(payload).toString()) as Message,
}

function callOf(options: Partial<IncomingCall> = {}): IncomingCall {
  return {
    timeoutMs: undefined,
    hangup: neverAborted,
    peer: 'test',
    framing: 'ttrpc',
    number: undefined,
    ageMs: 0,
    ...options,
  }
}

function wrapped(
  rpc: Partial<Rpc<Message, Message>> & Pick<Rpc<Message, Message>, 'handle'>,
  gate = openGate,
  check?: Check,
  totals = new Totals(),
  name = 'grpc.AgentService/Test',
  nowMs = () => 0,
  files = new MemoryStateFiles(),
  source: RequestSource = new FakeRequests(),
) {
  const lines: LogLine[] = []
  const log = jsonLogger({
    sink: (line) => lines.push(parseLogLine(line)),
    level: () => 'trace',
    version: '0',
    pid: 1,
  })
  const { handle, recovery = 'read', ...more } = rpc
  const rule = check === undefined ? 'none' : 'request'
  const full = cancellable(recovery, handle, { rule, ...more })
  const declared = { name, types: { request: json, response: json }, rpc: full }
  const requests = new RequestJournal(new StateStore(files), log, source)
  requests.read()
  const policy = { checkOf: () => check ?? (() => undefined) }
  const calls = silentCalls(nowMs)
  const outcomes = keptOutcomes({ requests })
  const names = NO_NAMES
  const method = wrap(declared, { log, gate, policy, totals, requests, names, calls, outcomes, nowMs })
  return { method, lines, calls, requests }
}

function tellTo(told: boolean[]): Taken {
  return { delivered: () => told.push(true), dropped: () => told.push(false) }
}

const NO_NAMES = { bringUpToDate: () => {} }

const openGate: Gate = { isOpen: true, wait: async () => {} }
const closedGate = {
  isOpen: false,
  wait: (signal: AbortSignal) =>
    new Promise<void>((_, reject) => signal.addEventListener('abort', () => reject(signal.reason))),
}
const request = Buffer.from(JSON.stringify({ containerId: 'c1', env: ['SECRET=1'] }))

describe('the call wrapper', () => {
  it('answers with the encoded response and logs one line with ids and outcome, never the environment', async () => {
    const { method, lines } = wrapped({ handle: async (message) => ({ containerId: message.containerId }) })
    const outcome = await method(request, callOf())
    expect(outcome).toMatchObject({ ok: true })
    expect(outcome.ok && Buffer.from(outcome.payload).toString()).toBe('{"containerId":"c1"}')
    expect(lines).toHaveLength(1)
    expect(lines[0]).toMatchObject({
      rpc: 'grpc.AgentService/Test',
      containerId: 'c1',
      code: 'OK',
      level: 'INFO',
    })
    expect(JSON.stringify(lines)).not.toContain('SECRET')
  })

  it.each([
    ['a mistake of the caller', new AgentError('INVALID_ARGUMENT', 'wrong'), 'WARN'],
    [
      'a mistake with a code that shims look for',
      new AgentError('INTERNAL', 'Invalid container id', { fault: 'caller' }),
      'WARN',
    ],
    ['a failure of the guest', new AgentError('INTERNAL', 'mount: EIO'), 'ERRO'],
    ['a defect', new TypeError('x is not a function'), 'ERRO'],
    ['a call that its client has cancelled', new AgentError('CANCELLED', 'gone'), 'INFO'],
  ])('logs %s by its class', async (_what, error, level) => {
    const { method, lines } = wrapped({ handle: () => Promise.reject(error) })
    await method(request, callOf())
    expect(lines).toMatchObject([{ msg: 'rpc', level }])
  })

  it.each([
    [
      'what a hook has written',
      'hook: exit status 3, stdout: a\nb, stderr: token=1 (hook #0: prestart /x)',
      'hook: exit status 3 (hook #0: prestart /x)',
    ],
    [
      'what an unknown hook has written',
      'hook: exit status 3, stdout: , stderr: token=1',
      'hook: exit status 3',
    ],
    [
      'the middle of a long error',
      `${'a'.repeat(900)}${'b'.repeat(900)}`,
      `${'a'.repeat(500)}…${'b'.repeat(499)}`,
    ],
  ])('remembers a call that has failed without %s', async (_what, message, error) => {
    const { method, calls } = wrapped({ handle: () => Promise.reject(new AgentError('INTERNAL', message)) })
    await method(request, callOf())
    const rpc = 'grpc.AgentService/Test'
    expect(calls.failed()).toEqual([
      { rpc, ids: { containerId: 'c1' }, code: 'INTERNAL', error, callerFault: false, atMs: 0 },
    ])
  })

  it.each([
    ['as the log has it', new AgentError('INTERNAL', 'said: x', { loggedMessage: 'said' }), ['said']],
    ['unless its caller has left', new AgentError('CANCELLED', 'gone'), []],
  ])('remembers a call that has failed %s', async (_what, failure, errors) => {
    const { method, calls } = wrapped({ handle: () => Promise.reject(failure) })
    await method(request, callOf())
    expect(calls.failed().map(({ error }) => error)).toEqual(errors)
  })

  it('begins calls in the order in which they came, whether they count as work or not', async () => {
    const begun: string[] = []
    const totals = new Totals()
    const calls = ['CreateContainer', 'ReadStdout'].map((name) => {
      const handle = async (message: Message) => {
        begun.push(name)
        return message
      }
      return wrapped({ handle }, openGate, undefined, totals, `grpc.AgentService/${name}`).method
    })
    await Promise.all(calls.map((method) => method(Buffer.from('{}'), callOf())))
    expect(begun).toEqual(['CreateContainer', 'ReadStdout'])
  })

  it('answers UNKNOWN when the payload cannot be decoded', async () => {
    const { method } = wrapped({ handle: async (message) => message })
    expect(await method(Buffer.from('{'), callOf())).toMatchObject({ ok: false, code: 'UNKNOWN' })
  })

  it('turns an error and its causes into a status', async () => {
    const { method } = wrapped({
      handle: async () => {
        throw new AgentError('NOT_FOUND', 'Process not found: invalid exec id', { cause: new Error('gone') })
      },
    })
    const expected = { ok: false, code: 'NOT_FOUND', message: 'Process not found: invalid exec id: gone' }
    expect(await method(request, callOf())).toEqual(expected)
  })

  it('answers INTERNAL for an error that is no AgentError', async () => {
    const { method } = wrapped({ handle: () => Promise.reject(new TypeError('x is undefined')) })
    expect(await method(request, callOf())).toEqual({
      ok: false,
      code: 'INTERNAL',
      message: 'x is undefined',
    })
  })

  it('waits for the boot gate until the deadline at most', async () => {
    const { method } = wrapped({ handle: async (message) => message }, closedGate)
    const outcome = await method(request, callOf({ timeoutMs: 5 }))
    expect(outcome).toEqual({ ok: false, code: 'DEADLINE_EXCEEDED', message: 'timeout' })
  })

  it('answers RPCs with an open gate during boot', async () => {
    const { method } = wrapped({ handle: async (message) => message, gate: 'open' }, closedGate)
    expect(await method(request, callOf())).toMatchObject({ ok: true })
  })

  it('aborts a cancellable call on hang-up, and answers only after its undo', async () => {
    const hangup = new AbortController()
    const undone = Promise.withResolvers<void>()
    const started = Promise.withResolvers<void>()
    let answered = false
    const { method } = wrapped({
      handle: async (_, call) => {
        started.resolve()
        await new Promise((resolve) => call.signal.addEventListener('abort', resolve))
        await undone.promise
        throw new Error('anything')
      },
    })
    const outcome = method(request, callOf({ hangup: hangup.signal })).finally(() => (answered = true))
    await started.promise
    hangup.abort(cancelled())
    await Promise.resolve()
    expect(answered).toBe(false)
    undone.resolve()
    expect(await outcome).toMatchObject({ ok: false, code: 'CANCELLED' })
  })

  it('lets a call that must finish run on after the deadline', async () => {
    const release = Promise.withResolvers<void>()
    const finished = Promise.withResolvers<boolean>()
    const { method } = wrapped({
      onHangup: 'finish',
      handle: async (message, call) => {
        await release.promise
        finished.resolve(call.signal.aborted)
        return message
      },
    })
    expect(await method(request, callOf({ timeoutMs: 5 }))).toMatchObject({ code: 'DEADLINE_EXCEEDED' })
    release.resolve()
    expect(await finished.promise).toBe(false)
  })

  it('logs a failure of such a call after its caller has left', async () => {
    const release = Promise.withResolvers<never>()
    const { method, lines } = wrapped({ onHangup: 'finish', handle: () => release.promise })
    await method(request, callOf({ timeoutMs: 5 }))
    release.reject(new Error('too late'))
    await new Promise((resolve) => setImmediate(resolve))
    expect(lines.at(-1)).toMatchObject({ level: 'WARN', error: 'too late' })
  })

  describe('for a call that the policy refuses', () => {
    const options = { loggedMessage: 'Test is blocked by policy' }
    const refuse: Check = () =>
      Promise.reject(new Refusal('PERMISSION_DENIED', 'Test is blocked by policy: SECRET=1', options))

    it('does not run it, and logs no text of the rule', async () => {
      let ran = false
      const handle = async (message: Message) => {
        ran = true
        return message
      }
      const { method, lines } = wrapped({ handle }, openGate, refuse)
      const refused = { code: 'PERMISSION_DENIED', message: 'Test is blocked by policy: SECRET=1' }
      expect(await method(request, callOf())).toMatchObject(refused)
      expect(ran).toBe(false)
      expect(lines[0]).toMatchObject({ code: 'PERMISSION_DENIED', error: 'Test is blocked by policy' })
    })

    it('runs a read, and answers it without data, whether or not the answer arrives', async () => {
      const told: boolean[] = []
      const handle: Rpc<Message, Message>['handle'] = async (message, { takes }) => {
        takes(tellTo(told))
        return message
      }
      const { method } = wrapped({ handle, emptied: () => ({ containerId: '' }) }, openGate, refuse)
      const outcome = await method(request, callOf())
      expect(outcome.ok && Buffer.from(outcome.payload).toString()).toBe('{"containerId":""}')
      if (outcome.ok) outcome.delivered?.(false)
      expect(told).toEqual([true])
    })

    it('checks only after the boot', async () => {
      const { method } = wrapped({ handle: async (message) => message }, closedGate, refuse)
      expect(await method(request, callOf({ timeoutMs: 5 }))).toMatchObject({ code: 'DEADLINE_EXCEEDED' })
    })
  })

  describe('takes from the limits of all connections', () => {
    const totalsOf = (elements: number) =>
      new Totals({ ...LIMITS, total: { ...LIMITS.total, elements: { limit: elements, reserve: 0 } } })
    const used = (totals: Totals) =>
      Object.fromEntries(totals.uses().map(({ name, used: amount }) => [name, amount]))
    const nothing = { elements: 0, working_calls: 0, bytes: 0 }

    it('the elements of the request until the call is answered, and refuses a request for which there are too few', async () => {
      const totals = totalsOf(request.length)
      const answer = Promise.withResolvers<Message>()
      const { method } = wrapped({ handle: () => answer.promise }, openGate, undefined, totals)
      const first = method(request, callOf())
      expect(await method(request, callOf())).toEqual({
        ok: false,
        code: 'RESOURCE_EXHAUSTED',
        message: `elements of the requests of all connections: ${request.length} of at most ${request.length} in use`,
      })
      answer.resolve({ containerId: 'c1' })
      expect(await first).toMatchObject({ ok: true })
      expect(used(totals)).toMatchObject(nothing)
    })

    it('the request of work that continues without its caller, until the work has ended', async () => {
      const totals = totalsOf(1000)
      const answer = Promise.withResolvers<Message>()
      const { method } = wrapped(
        { handle: () => answer.promise, onHangup: 'finish' },
        openGate,
        undefined,
        totals,
      )
      expect(await method(request, callOf({ timeoutMs: 5 }))).toMatchObject({ code: 'DEADLINE_EXCEEDED' })
      const { length } = request
      expect(used(totals)).toMatchObject({ elements: length, working_calls: 1, bytes: length })
      answer.resolve({ containerId: 'c1' })
      await turns()
      expect(used(totals)).toMatchObject(nothing)
    })
  })

  it('does not begin a call whose time is over', async () => {
    let ran = false
    const handle = async (message: Message) => {
      ran = true
      return message
    }
    const { method, lines } = wrapped({ handle })
    expect(await method(request, callOf({ timeoutMs: 0 }))).toMatchObject({ code: 'DEADLINE_EXCEEDED' })
    expect(ran).toBe(false)
    expect(lines).toMatchObject([{ containerId: 'c1', code: 'DEADLINE_EXCEEDED' }])
  })

  it('tells the handler the number of the request, its age at any time, and whether it was sent before', async () => {
    let now = 100
    const seen: unknown[] = []
    const handle: Rpc<Message, Message>['handle'] = async (message, { number, ageMs, sentBefore }) => {
      seen.push(number, sentBefore, ageMs())
      now += 40
      seen.push(ageMs())
      return message
    }
    const { method } = wrapped({ handle }, openGate, undefined, new Totals(), 'grpc.Test/Test', () => now)
    await method(request, callOf({ number: 7n, ageMs: 1000, sentBefore: true }))
    expect(seen).toEqual([7n, true, 1000, 1040])
  })

  it('asks the framing for the delivery only when the handler does', async () => {
    const { method } = wrapped({ handle: async (message) => message })
    expect(await method(request, callOf())).not.toHaveProperty('delivered')
  })

  it('reports to the handler whether its response was delivered', async () => {
    const seen: boolean[] = []
    const { method } = wrapped({
      handle: async (message, call) => {
        call.takes(tellTo(seen))
        return message
      },
    })
    const outcome = await method(request, callOf())
    expect(seen).toEqual([])
    if (outcome.ok) outcome.delivered?.(true)
    expect(seen).toEqual([true])
  })

  it.each([
    ['fails', async () => Promise.reject(new Error('no'))],
    ['is late', async () => new Promise<Message>((resolve) => setTimeout(resolve, 10, { containerId: '' }))],
  ] as const)('drops what the answer takes of a call that %s', async (_what, end) => {
    const seen: boolean[] = []
    const done = Promise.withResolvers<void>()
    const { method } = wrapped({
      onHangup: 'finish',
      handle: async (_message, call) => {
        call.takes(tellTo(seen))
        try {
          return await end()
        } finally {
          call.takes(tellTo(seen))
          done.resolve()
        }
      },
    })
    expect(await method(request, callOf({ timeoutMs: 1 }))).toMatchObject({ ok: false })
    await done.promise
    expect(seen).toEqual([false, false])
  })

  it('reports the delivery to all who asked for it, even when one of them fails', async () => {
    const seen: boolean[] = []
    const { method, lines } = wrapped({
      handle: async (message, call) => {
        const fail = () => {
          throw new Error('write requests/5: EIO')
        }
        call.takes({ delivered: fail, dropped: fail })
        call.takes(tellTo(seen))
        return message
      },
    })
    const outcome = await method(request, callOf())
    if (outcome.ok) outcome.delivered?.(true)
    expect(seen).toEqual([true])
    expect(lines.at(-1)).toMatchObject({ msg: 'delivery not recorded', error: 'write requests/5: EIO' })
  })
})

describe('the outcome of a call that must not be carried out twice', () => {
  const calls: string[] = []
  const agent = (
    files: MemoryStateFiles,
    rpc: Pick<Rpc<Message, Message>, 'recovery'> & Partial<Rpc<Message, Message>>,
  ) => {
    calls.length = 0
    const handle = async ({ containerId }: Message, { beforeEffect }: Call) => {
      calls.push(files.names().join())
      beforeEffect()
      calls.push(files.names().join())
      return { containerId: `${containerId} done` }
    }
    return wrapped({ handle, ...rpc }, openGate, undefined, undefined, undefined, undefined, files).method
  }

  it.each([
    ['journaled', '', '{"containerId":"c1 done"}'],
    // Recorded only afterwards: a call without an effect is carried out again.
    ['at-most-once', 'requests/5', ''],
  ] as const)(
    'is recorded before the answer (%s), and answers the call when it is sent again',
    async (recovery, atWork, payload) => {
      const files = new MemoryStateFiles()
      const answer = await agent(files, { recovery })(request, callOf({ number: 5n }))
      expect(calls).toEqual(['', atWork])
      expect(files.names()).toEqual(['requests/5'])
      const again = await agent(files, { recovery })(request, callOf({ number: 5n, ageMs: 9 }))
      expect(calls).toEqual([])
      if (!again.ok || !answer.ok) throw new Error('a call has failed')
      expect(Buffer.from(again.payload).toString()).toBe(payload)
      again.delivered?.(true)
      expect(files.names()).toEqual([])
    },
  )

  it.each(['read', 'idempotent'] as const)(
    'is not recorded for a call that may be carried out twice (%s)',
    async (recovery) => {
      const files = new MemoryStateFiles()
      await agent(files, { recovery })(request, callOf({ number: 5n }))
      expect(files.names()).toEqual([])
    },
  )

  it.each([
    ['expires before its function has begun', 0, async (message: Message) => message, false],
    ['fails', 1000, async () => Promise.reject(new AgentError('INTERNAL', 'no')), false],
    ['is answered', 1000, async (message: Message) => message, true],
  ] as const)(
    'of the previous agent is told what becomes of a call that %s',
    async (_what, timeoutMs, handle, ok) => {
      const source = new FakeRequests([[5n, 'open']])
      const rpc = { recovery: 'journaled', ownJournal: true, handle } as const
      const { method, requests } = wrapped(
        ...([
          rpc,
          openGate,
          undefined,
          undefined,
          undefined,
          undefined,
          new MemoryStateFiles(),
          source,
        ] as const),
      )
      const told: boolean[] = []
      requests.settle(5n, tellTo(told))
      const outcome = await method(request, callOf({ number: 5n, timeoutMs }))
      if (outcome.ok) outcome.delivered?.(true)
      expect([outcome.ok, told, requests.isSentAgain(5n)]).toEqual([ok, [ok], ok])
    },
  )

  it('answers a call with its own journal, too, once the journal has recorded it', async () => {
    const files = new MemoryStateFiles()
    const call = { number: 5n, takes: () => {} }
    const handle = async (message: Message) => message
    const { requests } = wrapped({ handle }, openGate, undefined, undefined, undefined, undefined, files)
    requests.take(call, { exit: 'p1', response: Buffer.from('{"containerId":"c1 ended"}') }, tellTo([]))
    const again = await agent(files, { recovery: 'journaled', ownJournal: true })(
      request,
      callOf({ number: 5n, ageMs: 9 }),
    )
    if (!again.ok) throw new Error(again.message)
    expect(Buffer.from(again.payload).toString()).toBe('{"containerId":"c1 ended"}')
    expect(calls).toEqual([])
  })

  it('is not recorded for a call with its own journal, a call without a number, or a failure', async () => {
    const files = new MemoryStateFiles()
    await agent(files, { recovery: 'journaled', ownJournal: true })(request, callOf({ number: 5n }))
    await agent(files, { recovery: 'journaled' })(request, callOf())
    const handle = () => Promise.reject(new AgentError('INTERNAL', 'no'))
    await agent(files, { recovery: 'at-most-once', handle })(request, callOf({ number: 6n }))
    expect(files.names()).toEqual([])
  })
})
