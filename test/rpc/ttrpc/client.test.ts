import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { CheckRequest, HealthCheckResponse, HealthDefinition } from '../../../src/gen/health.ts'
import { clientFor } from '../../../src/rpc/client.ts'
import { startTimer } from '../../../src/rpc/timer.ts'
import { type TtrpcClient, ttrpcClient } from '../../../src/rpc/ttrpc/client.ts'
import { encodeErrorFrame } from '../../../src/rpc/ttrpc/messages.ts'
import { TtrpcServerConnection } from '../../../src/rpc/ttrpc/server-connection.ts'
import { brokeredPair, forgetfulLink } from '../../support/rpc/brokered-pair.ts'
import { aborted, echo, type HeldMethod, heldMethod, tableOf } from '../../support/rpc/fake-methods.ts'
import { connectionTotals } from '../../support/rpc/totals.ts'

const text = (bytes: Uint8Array) => Buffer.from(bytes).toString()

describe('ttrpcClient', () => {
  let sockets: Awaited<ReturnType<typeof brokeredPair>>
  let client: TtrpcClient
  let held: HeldMethod

  beforeEach(async () => {
    sockets = await brokeredPair()
    held = heldMethod()
    new TtrpcServerConnection(sockets.server, {
      totals: connectionTotals(),
      link: forgetfulLink,
      methods: tableOf({
        'test.Echo/Echo': echo,
        'test.Echo/Held': held.method,
        'test.Echo/Fail': async () => ({ ok: false, code: 'NOT_FOUND', message: 'no such thing: x' }),
        'grpc.Health/Check': async (payload) => {
          expect(CheckRequest.decode(payload)).toEqual({ service: 'x' })
          return { ok: true, payload: HealthCheckResponse.encode({ status: 1 }).finish() }
        },
      }),
      peer: 'test',
      startTimer,
    }).start()
    client = ttrpcClient(sockets.client)
  })

  afterEach(() => sockets.close())

  it('resolves with the response', async () => {
    expect(text(await client.call('test.Echo', 'Echo', Buffer.from('hello')))).toBe('hello')
    expect(await client.call('test.Echo', 'Echo', new Uint8Array(0))).toHaveLength(0)
  })

  it('rejects with the code and text of the status', async () => {
    await expect(client.call('test.Echo', 'Fail', Buffer.alloc(0))).rejects.toMatchObject({
      name: 'AgentError',
      code: 'NOT_FOUND',
      message: 'no such thing: x',
    })
  })

  it('runs calls concurrently and accepts responses in any order', async () => {
    const calls = ['a', 'b', 'c'].map((name) => client.call('test.Echo', 'Held', Buffer.from(name)))
    const [a, b, c] = [await held.next(), await held.next(), await held.next()]
    expect(text(await client.call('test.Echo', 'Echo', Buffer.from('now')))).toBe('now')
    for (const call of [c, a, b]) call.answer({ ok: true, payload: call.payload })
    expect((await Promise.all(calls)).map(text)).toEqual(['a', 'b', 'c'])
  })

  it('rejects only the call whose signal fires, and drops its late answer', async () => {
    const abort = new AbortController()
    const cancelled = client.call('test.Echo', 'Held', Buffer.alloc(0), { signal: abort.signal })
    const call = await held.next()
    abort.abort(new Error('enough'))
    await expect(cancelled).rejects.toThrow('enough')
    call.answer({ ok: true, payload: Buffer.from('late') })
    expect(text(await client.call('test.Echo', 'Echo', Buffer.from('next')))).toBe('next')
  })

  it('refuses a call whose signal is already aborted', async () => {
    const signal = AbortSignal.abort(new Error('over'))
    await expect(client.call('test.Echo', 'Echo', Buffer.alloc(0), { signal })).rejects.toThrow('over')
  })

  it('sends the time limit to the server and enforces it itself', async () => {
    const call = client.call('test.Echo', 'Held', Buffer.alloc(0), { timeoutMs: 20 })
    expect((await held.next()).call.timeoutMs).toBe(20)
    await expect(call).rejects.toMatchObject({ code: 'DEADLINE_EXCEEDED', message: 'timeout' })
  })

  it('rejects all calls with UNAVAILABLE when the server closes the connection', async () => {
    const calls = [1, 2].map(() => client.call('test.Echo', 'Held', Buffer.alloc(0)))
    await held.next()
    sockets.server.destroy()
    for (const call of calls) {
      await expect(call).rejects.toMatchObject({ code: 'UNAVAILABLE', message: 'ttrpc: closed' })
    }
    await client.closed
    await expect(client.call('test.Echo', 'Echo', Buffer.alloc(0))).rejects.toMatchObject({
      code: 'UNAVAILABLE',
    })
  })

  it('closes the connection on close', async () => {
    const call = client.call('test.Echo', 'Held', Buffer.alloc(0))
    const { hangup } = (await held.next()).call
    client.close()
    await expect(call).rejects.toMatchObject({ code: 'UNAVAILABLE', message: 'ttrpc: closed' })
    expect(await aborted(hangup)).toMatchObject({ code: 'CANCELLED' })
    await client.closed
  })

  it('refuses a request that is too large without sending it', async () => {
    await expect(client.call('test.Echo', 'Echo', Buffer.alloc(4 * 1024 * 1024))).rejects.toMatchObject({
      code: 'RESOURCE_EXHAUSTED',
    })
    expect(text(await client.call('test.Echo', 'Echo', Buffer.from('next')))).toBe('next')
  })

  it('rejects with INTERNAL when the response is not a message', async () => {
    const call = client.call('test.Echo', 'Held', Buffer.alloc(0))
    await held.next()
    sockets.broker.write(Uint8Array.of(0, 0, 0, 1, 0, 0, 0, 1, 2, 0, 0xff))
    await expect(call).rejects.toMatchObject({ code: 'INTERNAL' })
  })

  it('treats an unknown status code as UNKNOWN', async () => {
    const call = client.call('test.Echo', 'Held', Buffer.alloc(0))
    await held.next()
    sockets.broker.write(encodeErrorFrame(1, { code: 77, message: 'odd' }))
    await expect(call).rejects.toMatchObject({ code: 'UNKNOWN', message: 'odd' })
  })

  it('offers the methods of a generated definition', async () => {
    const health = clientFor(HealthDefinition, client)
    expect((await health.check({ service: 'x' })).status).toBe(1)
    await expect(health.version({})).rejects.toMatchObject({ code: 'UNIMPLEMENTED' })
  })
})
