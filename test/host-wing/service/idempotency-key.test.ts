import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { AgentError } from '../../../src/base/errors.ts'
import { silentLogger } from '../../../src/base/log.ts'
import {
  ChangeStateRequest_Change as Change,
  EnsureInstanceRequest,
} from '../../../src/gen/microvm/instance/v1/instance.ts'
import { CallRecord } from '../../../src/gen/microvm/instance/v1/records.ts'
import { memoryRegistry } from '../../../src/host/instance/registry/memory-registry.ts'
import type { Registry, Change as RegistryChange } from '../../../src/host/instance/registry/registry.ts'
import { CALL_LIMITS, CallJournal, type KeyedCall } from '../../../src/host/service/call-journal.ts'
import {
  type DaemonClient,
  type RunningDaemon,
  runMockDaemon,
} from '../../support/host-wing/running-daemon.ts'
import { ensureRequest } from '../../support/wing/requests.ts'

const DAY_MS = 24 * 3_600_000

describe('the journal of calls with an idempotency key', () => {
  let registry: Registry
  let written: (RegistryChange & { readonly record: CallRecord | undefined })[]
  let nowMs: number
  let runs: number
  let lost: AgentError | undefined

  beforeEach(() => {
    const memory = memoryRegistry()
    written = []
    nowMs = 1_000_000
    runs = 0
    lost = undefined
    registry = {
      ...memory,
      commit: async (changes) => {
        if (lost !== undefined) throw lost
        for (const change of changes)
          written.push({ ...change, record: change.payload && CallRecord.decode(change.payload) })
        await memory.commit(changes)
      },
    }
  })

  const open = () => CallJournal.open({ registry, nowMs: () => nowMs, log: silentLogger() })
  const call = (more: Partial<KeyedCall> = {}): KeyedCall => ({
    ...{ tenant: 'anne', idempotencyKey: 'k', method: 'S/Plug', digest: Buffer.from('d'), frees: false },
    ...more,
  })
  const work = async () => {
    runs += 1
    return Buffer.from(`answer ${runs}`)
  }
  const failing = async () => {
    runs += 1
    throw new AgentError('NOT_FOUND', `failure ${runs}`)
  }

  it('writes the intent before the call and the outcome after it', async () => {
    const journal = await open()
    let before: readonly unknown[] = []
    await journal.run(call(), async () => {
      before = written.map(({ key, record }) => [key, record?.ended])
      return work()
    })
    expect(before).toEqual([['anne/k', false]])
    expect(written.map(({ record }) => record)).toMatchObject([
      { method: 'S/Plug', ended: false },
      { method: 'S/Plug', ended: true, code: 'OK', answer: Uint8Array.from(Buffer.from('answer 1')) },
    ])
  })

  it('answers a repeated call as the first, whether it runs, has ended or has failed', async () => {
    const journal = await open()
    const answers = await Promise.all([journal.run(call(), work), journal.run(call(), work)])
    answers.push(await journal.run(call(), work))
    expect(answers.map(textOf)).toEqual(['answer 1', 'answer 1', 'answer 1'])
    for (const _ of [1, 2]) {
      const failure = journal.run(call({ idempotencyKey: 'f' }), failing)
      await expect(failure).rejects.toMatchObject({ code: 'NOT_FOUND', message: 'failure 2' })
    }
    expect(runs).toBe(2)
  })

  it('answers a repeated call as an earlier daemon has', async () => {
    const first = await open()
    await first.run(call(), work)
    await first.run(call({ idempotencyKey: 'f' }), failing).catch(() => {})
    const second = await open()
    expect(textOf(await second.run(call(), work))).toBe('answer 1')
    await expect(second.run(call({ idempotencyKey: 'f' }), work)).rejects.toMatchObject({
      code: 'NOT_FOUND',
      message: 'failure 2',
    })
    expect(runs).toBe(2)
  })

  it('runs a call again of which an earlier daemon knew no outcome', async () => {
    const first = await open()
    void first.run(call(), () => new Promise(() => {}))
    await expect.poll(() => written.length).toBe(1)
    const second = await open()
    const repeated: (number | undefined)[] = []
    const told = async (begunMs: number | undefined) => {
      repeated.push(begunMs)
      return work()
    }
    await second.run(call(), told)
    await second.run(call({ idempotencyKey: 'new' }), told)
    expect(repeated).toEqual([nowMs, undefined])
  })

  it.each(['CANCELLED', 'DEADLINE_EXCEEDED', 'RESOURCE_EXHAUSTED', 'UNAVAILABLE'] as const)(
    'runs a call again that had the error %s, which passes',
    async (code) => {
      const journal = await open()
      const passing = journal.run(call(), async () => {
        throw new AgentError(code, 'try again')
      })
      await expect(passing).rejects.toMatchObject({ code })
      const repeated: (number | undefined)[] = []
      const told = async (begunMs: number | undefined) => {
        repeated.push(begunMs)
        return work()
      }
      await expect(journal.run(call({ digest: Buffer.from('e') }), told)).rejects.toThrow('another request')
      expect(textOf(await journal.run(call(), told))).toBe('answer 1')
      expect(textOf(await (await open()).run(call(), told))).toBe('answer 1')
      expect(repeated).toEqual([nowMs])
    },
  )

  it.each(['NOT_FOUND', 'FAILED_PRECONDITION', 'ABORTED', 'INTERNAL'] as const)(
    'repeats the error %s',
    async (code) => {
      const journal = await open()
      const failed = async () => {
        throw new AgentError(code, `failure ${++runs}`)
      }
      const failure = { code, message: 'failure 1' }
      await expect(journal.run(call(), failed)).rejects.toMatchObject(failure)
      for (const each of [journal, await open()])
        await expect(each.run(call(), work)).rejects.toMatchObject(failure)
    },
  )

  it('leaves the outcome of a call that outlives its daemon to the next one', async () => {
    const journal = await open()
    const held = Promise.withResolvers<Uint8Array>()
    const running = journal.run(call(), () => held.promise)
    await expect.poll(() => written.length).toBe(1)
    journal.close()
    held.resolve(Buffer.from('late'))
    await running
    expect(written.map(({ record }) => record?.ended)).toEqual([false])
  })

  it.each([
    ['method', { method: 'S/Unplug' }, 'idempotency-key: "k" was used for S/Plug, want another key'],
    [
      'request',
      { digest: Buffer.from('e') },
      'idempotency-key: "k" was used with another request, want another key',
    ],
  ])('refuses the key of a call with another %s', async (_what, more, message) => {
    const journal = await open()
    await journal.run(call(), work)
    await expect(journal.run(call(more), work)).rejects.toMatchObject({ code: 'INVALID_ARGUMENT', message })
    expect(textOf(await journal.run(call({ ...more, tenant: 'bob' }), work))).toBe('answer 2')
  })

  it.each([0, 129])('refuses a key of %i bytes', async (bytes) => {
    const journal = await open()
    await expect(journal.run(call({ idempotencyKey: 'x'.repeat(bytes) }), work)).rejects.toMatchObject({
      code: 'INVALID_ARGUMENT',
      message: `idempotency-key: ${bytes} bytes, want 1 to 128`,
    })
  })

  it('does not run a call whose intent cannot be written, and lets it be repeated', async () => {
    const journal = await open()
    lost = new AgentError('RESOURCE_EXHAUSTED', 'registry: disk full')
    await expect(journal.run(call(), work)).rejects.toThrow('disk full')
    expect(runs).toBe(0)
    lost = undefined
    expect(textOf(await journal.run(call(), work))).toBe('answer 1')
  })

  it('runs a call that only frees although the disk is full, and remembers it meanwhile', async () => {
    const journal = await open()
    lost = new AgentError('RESOURCE_EXHAUSTED', 'registry: disk full')
    for (const _ of [1, 2]) expect(textOf(await journal.run(call({ frees: true }), work))).toBe('answer 1')
    lost = new AgentError('INTERNAL', 'registry: closed')
    await expect(journal.run(call({ idempotencyKey: 'l', frees: true }), work)).rejects.toThrow('closed')
  })

  it('forgets calls after a day', async () => {
    const journal = await open()
    await journal.run(call(), work)
    nowMs += DAY_MS + 1
    expect(textOf(await journal.run(call({ method: 'S/Unplug' }), work))).toBe('answer 2')
    await journal.run(call({ idempotencyKey: 'other' }), work)
    nowMs += DAY_MS + 1
    await journal.run(call({ idempotencyKey: 'last' }), work)
    expect([...(await registry.load('calls')).keys()]).toEqual(['anne/last'])
  })

  it('keeps a number of calls and of bytes for each tenant, the newest ones', async () => {
    const journal = await open()
    const { callsOfTenant, bytesOfTenant } = CALL_LIMITS
    await journal.run(call({ tenant: 'bob' }), work)
    for (let count = 0; count <= callsOfTenant; count += 1)
      await journal.run(call({ idempotencyKey: `k${count}` }), work)
    const keys = [...(await registry.load('calls')).keys()]
    expect(keys).toHaveLength(1 + callsOfTenant)
    expect(keys).not.toContain('anne/k0')
    const large = async () => Buffer.alloc(bytesOfTenant / 2)
    for (const key of ['a', 'b', 'c', 'd']) await journal.run(call({ idempotencyKey: key }), large)
    expect([...(await registry.load('calls')).keys()]).toEqual(['bob/k', 'anne/b', 'anne/c', 'anne/d'])
  })

  it('refuses a call when all that it could forget still run', async () => {
    const journal = await open()
    const { callsOfTenant } = CALL_LIMITS
    for (let count = 0; count < callsOfTenant; count += 1)
      void journal.run(call({ idempotencyKey: `k${count}` }), () => new Promise(() => {}))
    await expect(journal.run(call(), work)).rejects.toMatchObject({
      code: 'RESOURCE_EXHAUSTED',
      message: `calls of tenant "anne" with an idempotency key: ${callsOfTenant} of at most ${callsOfTenant} run`,
    })
  })
})

describe('a call with an idempotency key', () => {
  let running: RunningDaemon
  let client: DaemonClient
  const key = (name: string) => ({ metadata: { 'idempotency-key': name } })

  beforeEach(async () => {
    running = await runMockDaemon()
    client = running.client()
  })

  afterEach(() => running.close())

  it('is answered as before when it is repeated', async () => {
    const { instances } = client
    const made = await instances.ensureInstance(ensureRequest('a'), key('1'))
    await instances.changeState({ key: 'a', change: Change.RUN })
    expect(await instances.ensureInstance(ensureRequest('a'), key('1'))).toEqual(made)
    const stream = { key: 'a', container: 'c', stream: 'stdout' }
    const { port } = await instances.allocatePort(stream, key('2'))
    expect((await instances.allocatePort(stream, key('2'))).port).toBe(port)
    expect((await instances.allocatePort(stream, key('3'))).port).not.toBe(port)
    await instances.remove({ key: 'a' }, key('4'))
    expect(await instances.remove({ key: 'a' }, key('4'))).toEqual({})
    await expect(instances.remove({ key: 'a' })).rejects.toMatchObject({ code: 'NOT_FOUND' })
  })

  it.each([-2, 2])('is answered as before although the clock is set %i days further', async (days) => {
    const stream = { key: 'a', container: 'c', stream: 'stdout' }
    await client.instances.ensureInstance(ensureRequest('a'))
    await client.instances.changeState({ key: 'a', change: Change.RUN })
    const { port } = await client.instances.allocatePort(stream, key('1'))
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + days * DAY_MS })
    try {
      expect((await client.instances.allocatePort(stream, key('1'))).port).toBe(port)
    } finally {
      vi.useRealTimers()
    }
  })

  it('is the same call when a client shuffles the entries of a map', async () => {
    const of = (labels: Record<string, string>) =>
      EnsureInstanceRequest.fromPartial({
        ...ensureRequest('a'),
        properties: { key: 'a', labels },
      })
    const made = await client.instances.ensureInstance(of({ one: '1', two: '2' }), key('1'))
    expect(await client.instances.ensureInstance(of({ two: '2', one: '1' }), key('1'))).toEqual(made)
    await expect(client.instances.ensureInstance(of({ one: '2', two: '1' }), key('1'))).rejects.toMatchObject(
      {
        code: 'INVALID_ARGUMENT',
      },
    )
  })

  it('is another call for another instance of the metadata', async () => {
    await client.instances.ensureInstance(ensureRequest('a'))
    await client.instances.ensureInstance(ensureRequest('b'))
    const reset = (instance: string) =>
      client.outOfBand.reset({}, { metadata: { instance, ...key('1').metadata } })
    await reset('a')
    const { bootId } = await client.instances.getInstance({ key: 'a' })
    await reset('a')
    expect((await client.instances.getInstance({ key: 'a' })).bootId).toBe(bootId)
    await expect(reset('b')).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' })
  })
})

function textOf(bytes: Uint8Array): string {
  return Buffer.from(bytes).toString()
}
