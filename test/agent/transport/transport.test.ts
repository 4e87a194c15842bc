import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { status } from '@grpc/grpc-js'
import { afterEach, describe, expect, it } from 'vitest'
import { GuestDetailsResponse } from '../../../src/gen/agent.ts'
import type { Method } from '../../../src/rpc/method.ts'
import { ttrpcClient } from '../../../src/rpc/ttrpc/client.ts'
import { GO_REQUEST, GO_REQUEST_TO_UNKNOWN_SERVICE } from '../../fixtures/ttrpc-frames.ts'
import { type RunningTransport, runTransport } from '../../support/agent/running-transport.ts'
import { aborted, echo, heldMethod, tableOf, turns } from '../../support/rpc/fake-methods.ts'

const DAY_MS = 24 * 3600 * 1000

const recode: Method = async (payload) => ({
  ok: true,
  payload: GuestDetailsResponse.encode(GuestDetailsResponse.decode(payload)).finish(),
})

describe('startTransport', () => {
  let running: RunningTransport
  const held = heldMethod()
  const methods = tableOf({
    'test.Echo/Echo': echo,
    'test.Echo/Recode': recode,
    'test.Echo/Held': held.method,
  })

  afterEach(() => running.close())

  async function callers() {
    const ttrpc = await running.dialTtrpc()
    const grpc = running.dialGrpc()
    return [
      (method: string, payload: Uint8Array) => ttrpc.call('test.Echo', method, payload),
      (method: string, payload: Uint8Array) => grpc.call(`test.Echo/${method}`, payload),
    ]
  }

  function closed(socket: Socket): Promise<void> {
    return new Promise((resolve) => socket.resume().once('close', () => resolve()))
  }

  it('serves both framings on one socket', async () => {
    running = await runTransport(methods)
    for (const call of await callers()) {
      expect(Buffer.from(await call('Echo', Buffer.from('hello'))).toString()).toBe('hello')
    }
  })

  it('drops the TCP connections that are older than the one of a caller', async () => {
    const broken: string[] = []
    running = await runTransport(methods, { address: { kind: 'tcp', host: '127.0.0.1', port: 0 } })
    const sockets: Socket[] = []
    for (const _ of [1, 2, 3]) {
      const socket = await running.dial()
      const answered = once(socket, 'data')
      socket.write(GO_REQUEST)
      await answered
      sockets.push(socket)
      running.clock.advance(10)
    }
    const closings = sockets.map((socket, index) => closed(socket).then(() => broken.push(`${index}`)))
    const caller = `tcp 127.0.0.1 ${sockets[1]?.localPort}`
    expect(running.transport.dropOlder(caller, 0n)).toBe(1)
    await closings[0]
    expect(broken).toEqual(['0'])
    const now = running.clock.boottimeNs()
    // The caller has gone, and has dialled again since.
    running.transport.dropOlder('tcp 127.0.0.1 1', now - 15_000_000n)
    await closings[1]
    await turns()
    expect(broken).toEqual(['0', '1'])
    running.transport.dropOlder('', now)
    await Promise.all(closings)
  })

  it('cuts one whose calls do not end, and leaves those of other kinds', async () => {
    running = await runTransport(methods, { address: { kind: 'tcp', host: '127.0.0.1', port: 0 } })
    const socket = await running.dial()
    const call = ttrpcClient(socket).call('test.Echo', 'Held', Buffer.alloc(0))
    call.catch(() => {})
    await held.next()
    expect(running.transport.dropOlder('', running.clock.boottimeNs())).toBe(1)
    await turns()
    expect(socket.destroyed).toBe(false)
    const cut = closed(socket)
    running.clock.advance(100)
    await cut
    await running.close()
    running = await runTransport(methods)
    await running.dialTtrpc()
    expect(running.transport.dropOlder('', running.clock.boottimeNs())).toBe(0)
  })

  it('carries 2^64-1 over both framings', async () => {
    running = await runTransport(methods)
    const message = GuestDetailsResponse.fromPartial({ memBlockSizeBytes: 2n ** 64n - 1n })
    for (const call of await callers()) {
      const response = await call('Recode', GuestDetailsResponse.encode(message).finish())
      expect(GuestDetailsResponse.decode(response)).toEqual(message)
    }
  })

  it('carries messages of 3 MiB over both framings', async () => {
    running = await runTransport(methods)
    const payload = Buffer.alloc(3 * 1024 * 1024, 'x')
    for (const call of await callers()) expect(payload.equals(await call('Echo', payload))).toBe(true)
  })

  it.each([
    ['127.0.0.1', '127.0.0.2', '127.0.0.3'],
    // A dual-stack socket shows IPv4 addresses as IPv6 ones.
    ['::', '127.0.0.2', '::1'],
    ['::', '::1', '127.0.0.1'],
  ])('on TCP at %s, serves the peer %s and closes %s', async (host, tcpPeer, other) => {
    running = await runTransport(methods, { address: { kind: 'tcp', host, port: 0 }, tcpPeer })
    const dial = (localAddress: string) => {
      const to = localAddress.includes(':') ? '::1' : '127.0.0.1'
      return connect({ host: to, port: running.transport.port ?? 0, localAddress })
    }
    const refused = dial(other).on('error', () => {})
    refused.write(GO_REQUEST)
    await closed(refused)
    expect(running.accepted).toEqual([])
    const client = ttrpcClient(dial(tcpPeer))
    expect(Buffer.from(await client.call('test.Echo', 'Echo', Buffer.from('hello'))).toString()).toBe('hello')
    client.close()
  })

  it('serves TCP', async () => {
    running = await runTransport(methods, { address: { kind: 'tcp', host: '127.0.0.1', port: 0 } })
    const ttrpc = await running.dialTtrpc()
    expect(await ttrpc.call('test.Echo', 'Echo', Buffer.from('hello'))).toHaveLength(5)
    const call = ttrpc.call('test.Echo', 'Held', Buffer.alloc(0))
    const got = await held.next()
    expect(got.call.peer).toMatch(/^tcp 127\.0\.0\.1 \d+$/)
    got.answer({ ok: true, payload: Buffer.alloc(0) })
    await call
  })

  it('never closes an established connection that is idle', async () => {
    running = await runTransport(methods)
    const calls = await callers()
    for (const call of calls) await call('Echo', Buffer.alloc(0))
    running.clock.advance(30 * DAY_MS)
    for (const call of calls) await call('Echo', Buffer.alloc(0))
    expect(running.accepted.every((socket) => !socket.destroyed)).toBe(true)
    expect(running.accepted).toHaveLength(2)
  })

  it('keeps 256 connections without a valid call, and closes the oldest for the next one', async () => {
    running = await runTransport(methods)
    const speaking = await running.dialTtrpc()
    await speaking.call('test.Echo', 'Echo', Buffer.alloc(0))
    const dialIdle = async () => {
      const socket = await running.dial()
      socket.write(GO_REQUEST_TO_UNKNOWN_SERVICE)
      await once(socket, 'data')
      return socket
    }
    const [oldest, second] = [await dialIdle(), await dialIdle()]
    for (let count = 2; count < 256; count += 1) await dialIdle()
    expect(running.accepted.filter((socket) => socket.destroyed)).toEqual([])
    const [next] = await Promise.all([dialIdle(), closed(oldest)])
    await speaking.call('test.Echo', 'Echo', Buffer.alloc(0))
    expect(running.accepted.filter((socket) => socket.destroyed)).toHaveLength(1)
    for (const socket of [second, next]) {
      socket.write(GO_REQUEST)
      await once(socket, 'data')
    }
  })

  describe('stop', () => {
    it('answers the calls in progress, closes idle connections, and removes its socket', async () => {
      running = await runTransport(methods)
      const [ttrpc, grpc] = [await running.dialTtrpc(), running.dialGrpc()]
      const idle = await running.dialTtrpc()
      await idle.call('test.Echo', 'Echo', Buffer.alloc(0))
      const calls = [
        ttrpc.call('test.Echo', 'Held', Buffer.alloc(0)),
        grpc.call('test.Echo/Held', Buffer.alloc(0)),
      ]
      const got = [await held.next(), await held.next()]
      const stopped = running.transport.stop()
      await idle.closed
      for (const each of got) each.answer({ ok: true, payload: Buffer.from('done') })
      for (const response of await Promise.all(calls)) expect(Buffer.from(response).toString()).toBe('done')
      await stopped
      expect(running.clock.sleeping).toBe(0)
      expect(running.logged).toEqual([])
      const [error] = await once(connect(running.path), 'error')
      expect(error).toMatchObject({ code: 'ENOENT' })
    })

    it('closes the remaining connections after 5 s', async () => {
      running = await runTransport(methods)
      const [ttrpc, grpc] = [await running.dialTtrpc(), running.dialGrpc()]
      const calls = [
        ttrpc.call('test.Echo', 'Held', Buffer.alloc(0)),
        grpc.call('test.Echo/Held', Buffer.alloc(0)),
      ]
      const outcomes = Promise.allSettled(calls)
      const got = [await held.next(), await held.next()]
      const stopped = running.transport.stop()
      await turns()
      running.clock.advance(4_999)
      await turns()
      expect(got.some(({ call }) => call.hangup.aborted)).toBe(false)
      running.clock.advance(1)
      await stopped
      for (const { call } of got) await aborted(call.hangup)
      const reasons = (await outcomes).map((outcome) => outcome.status === 'rejected' && outcome.reason.code)
      expect(reasons).toEqual(['UNAVAILABLE', status.UNAVAILABLE])
      expect(running.logged).toMatchObject([{ level: 'warn', message: 'connections cut at the stop' }])
    })
  })
})
