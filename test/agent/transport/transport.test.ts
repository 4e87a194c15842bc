import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { status } from '@grpc/grpc-js'
import { afterEach, describe, expect, it } from 'vitest'
import { GuestDetailsResponse } from '../../../src/gen/agent.ts'
import type { Method } from '../../../src/rpc/method.ts'
import { GO_REQUEST } from '../../fixtures/ttrpc-frames.ts'
import { type RunningTransport, runTransport } from '../../support/agent/running-transport.ts'
import { aborted, echo, heldMethod, tableOf, turns } from '../../support/rpc/fake-methods.ts'

const PREFACE = Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n')
const DAY_MS = 24 * 3600 * 1000

/** Decodes and encodes again, as the service does. */
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

  /** A call over each framing. */
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

  /** The server's end of the latest connection. */
  function latest(): Socket {
    const socket = running.accepted.at(-1)
    if (socket === undefined) throw new Error('nothing was accepted')
    return socket
  }

  it('serves both framings on one socket', async () => {
    running = await runTransport(methods)
    for (const call of await callers()) {
      expect(Buffer.from(await call('Echo', Buffer.from('hello'))).toString()).toBe('hello')
    }
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

  it('keeps a connection that has sent nothing', async () => {
    running = await runTransport(methods)
    const socket = await running.dial()
    await turns()
    expect(running.clock.sleeping).toBe(0)
    running.clock.advance(DAY_MS)
    socket.write(GO_REQUEST)
    expect((await once(socket, 'data'))[0].subarray(4, 10).toString('hex')).toBe('000000010200')
  })

  it('keeps 256 silent connections, and closes the oldest for the next one', async () => {
    running = await runTransport(methods)
    const speaking = await running.dialTtrpc()
    await speaking.call('test.Echo', 'Echo', Buffer.alloc(0))
    const silent: Socket[] = []
    for (let count = 0; count < 256; count += 1) silent.push(await running.dial())
    const [oldest, second] = silent
    await speaking.call('test.Echo', 'Echo', Buffer.alloc(0))
    expect(running.accepted.filter((socket) => socket.destroyed)).toEqual([])
    const [one] = await Promise.all([running.dial(), oldest && closed(oldest)])
    await speaking.call('test.Echo', 'Echo', Buffer.alloc(0))
    expect(running.accepted.filter((socket) => socket.destroyed)).toHaveLength(1)
    for (const socket of [second, one]) {
      socket?.write(GO_REQUEST)
      await (socket && once(socket, 'data'))
    }
  })

  it.each([
    ['the preface of HTTP/2', PREFACE.subarray(0, 20)],
    ['a frame header of ttRPC', GO_REQUEST.subarray(0, 9)],
  ])(
    'closes a connection that has not completed %s after 10 s, even if it sends byte by byte',
    async (_, bytes) => {
      running = await runTransport(methods)
      const socket = await running.dial()
      const over = closed(socket)
      const server = latest()
      for (const byte of bytes.subarray(0, 8)) {
        socket.write(Uint8Array.of(byte))
        await once(server, 'data')
        running.clock.advance(1_000)
      }
      running.clock.advance(1_999)
      expect(server.destroyed).toBe(false)
      running.clock.advance(1)
      await over
      expect(running.clock.sleeping).toBe(0)
    },
  )

  it('has no time limit once the first bytes are complete', async () => {
    running = await runTransport(methods)
    const socket = await running.dial()
    const server = latest()
    socket.write(GO_REQUEST.subarray(0, 4))
    await once(server, 'data')
    expect(running.clock.sleeping).toBe(1)
    socket.write(GO_REQUEST.subarray(4))
    await once(socket, 'data')
    expect(running.clock.sleeping).toBe(0)
  })

  it.each([
    'GET / HTTP/1.1\r\n\r\n',
    'PRI * HTTP/1.1\r\n',
    '\x16\x03\x01\x00\xf8\x01',
    '\0\0\0\0\0\0\0\x01\x09\0',
  ])('closes a connection that begins with %j', async (text) => {
    running = await runTransport(methods)
    const socket = await running.dial()
    socket.write(Buffer.from(text, 'latin1'))
    await closed(socket)
  })

  describe('on vsock', () => {
    it.each([0, 1, 3, 1234])('closes a connection of CID %i before it has read a byte', async (cid) => {
      running = await runTransport(methods, { peer: { cid, port: 77 } })
      const socket = await running.dial()
      const over = closed(socket)
      socket.write(GO_REQUEST)
      await over
      const server = latest()
      expect(server.bytesRead).toBe(0)
      expect(server.bytesWritten).toBe(0)
    })

    it.each([
      [2, false],
      [1, true],
    ])('serves CID %i (loopback allowed: %s) and names it as the peer', async (cid, allowLoopback) => {
      running = await runTransport(methods, { peer: { cid, port: 77 }, allowLoopback })
      const ttrpc = await running.dialTtrpc()
      const call = ttrpc.call('test.Echo', 'Held', Buffer.alloc(0))
      const got = await held.next()
      expect(got.call.peer).toBe(`vsock ${cid}:77`)
      got.answer({ ok: true, payload: Buffer.alloc(0) })
      await call
    })
  })

  describe('stop', () => {
    it('answers the calls in progress, closes idle and silent connections, and stops listening', async () => {
      running = await runTransport(methods)
      const [ttrpc, grpc] = [await running.dialTtrpc(), running.dialGrpc()]
      const idle = await running.dialTtrpc()
      const silent = closed(await running.dial())
      await idle.call('test.Echo', 'Echo', Buffer.alloc(0))
      const calls = [
        ttrpc.call('test.Echo', 'Held', Buffer.alloc(0)),
        grpc.call('test.Echo/Held', Buffer.alloc(0)),
      ]
      const got = [await held.next(), await held.next()]
      const stopped = running.transport.stop()
      await Promise.all([idle.closed, silent])
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
