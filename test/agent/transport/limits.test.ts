import { once } from 'node:events'
import type { ClientHttp2Session } from 'node:http2'
import type { Socket } from 'node:net'
import { status } from '@grpc/grpc-js'
import { afterEach, describe, expect, it } from 'vitest'
import { StatusCode } from '../../../src/base/errors.ts'
import { LIMITS, Totals } from '../../../src/rpc/limits.ts'
import { encodeRequestFrame } from '../../../src/rpc/ttrpc/messages.ts'
import { type RunningTransport, runTransport } from '../../support/agent/running-transport.ts'
import { echo, heldMethod, tableOf, turns } from '../../support/rpc/fake-methods.ts'
import { grpcMessage, http2On, openCall } from '../../support/rpc/raw-http2.ts'
import { rawPeer } from '../../support/rpc/raw-peer.ts'

const MIB = 1024 * 1024
const NO_BYTES = Buffer.alloc(0)
const REFLECTION = 'grpc.reflection.v1.ServerReflection/ServerReflectionInfo'

describe('limits of all connections', () => {
  let running: RunningTransport
  let totals: Totals
  const held = heldMethod()

  /** `bytes` is the limit; a tenth of it is the reserve. */
  async function start(bytes: number, calls = 4): Promise<void> {
    const total = { bytes: { limit: bytes, reserve: bytes / 10 }, calls: { limit: calls, reserve: 2 } }
    totals = new Totals({ ...LIMITS, total: { ...LIMITS.total, ...total } })
    const methods = {
      'test.Echo/Echo': echo,
      'test.Echo/Held': held.method,
      'grpc.Health/Check': { serve: echo, share: 'reserved' } as const,
    }
    running = await runTransport(tableOf(methods), { totals })
  }

  afterEach(() => running.close())

  function used(name: string): number {
    return totals.uses().find((use) => use.name === name)?.used ?? Number.NaN
  }

  function frame(streamId: number, method: string, payload: Buffer): Buffer {
    return encodeRequestFrame(streamId, { service: 'test.Echo', method, payload, timeoutNano: 0n })
  }

  async function caller(): Promise<Socket> {
    const socket = await running.dial()
    socket.write(frame(1, 'Echo', NO_BYTES))
    await once(socket, 'data')
    return socket
  }

  async function openHttp2(initialWindowSize = 65_535): Promise<ClientHttp2Session> {
    return http2On(await running.dial(), { initialWindowSize })
  }

  async function expectCheckServed(): Promise<void> {
    const ttrpc = await running.dialTtrpc()
    expect(await ttrpc.call('grpc.Health', 'Check', Buffer.from('x'))).toHaveLength(1)
    expect(await running.dialGrpc().call('grpc.Health/Check', Buffer.from('x'))).toHaveLength(1)
  }

  it('close connections without a valid call for those that have had one', async () => {
    await start(8 * MIB)
    const session = await openHttp2()
    const closed = once(session, 'close')
    openCall(session, 'test.Echo/Echo').write(grpcMessage(Buffer.alloc(4 * MIB - 100)).subarray(0, -1))
    while (used('bytes') < 4 * MIB - 200) await turns(1)
    const peer = rawPeer(await caller())
    peer.send(frame(3, 'Echo', Buffer.alloc(4 * MIB - 100)))
    expect(await peer.response()).toMatchObject({ streamId: 3, code: 0 })
    await closed
  })

  it('refuse a frame without room, and keep its connection', async () => {
    await start(8 * MIB)
    const session = await openHttp2()
    // A valid call keeps this connection from being closed.
    openCall(session, 'test.Echo/Echo').end(grpcMessage(NO_BYTES))
    openCall(session, 'test.Echo/Echo').write(grpcMessage(Buffer.alloc(4 * MIB - 100)).subarray(0, -1))
    while (used('bytes') < 4 * MIB - 200) await turns(1)
    const peer = rawPeer(await caller())
    peer.send(frame(3, 'Echo', Buffer.alloc(4 * MIB - 100)))
    expect(await peer.response()).toMatchObject({
      streamId: 3,
      code: StatusCode.RESOURCE_EXHAUSTED,
      message: expect.stringMatching(
        /^bytes of requests and answers of all connections: \d+ of at most 8388608 in use$/,
      ),
    })
    peer.request(5, 'test.Echo', 'Echo')
    expect(await peer.response()).toMatchObject({ streamId: 5, code: 0 })
    await expectCheckServed()
    session.destroy()
    while (used('bytes') > 0) await turns(1)
    peer.send(frame(7, 'Echo', Buffer.alloc(MIB)))
    expect(await peer.response()).toMatchObject({ streamId: 7, code: 0 })
  })

  it('refuse calls of both framings, except those with a reserve', async () => {
    await start(8 * MIB)
    const ttrpc = await running.dialTtrpc()
    const grpc = running.dialGrpc()
    const calls = [ttrpc.call('test.Echo', 'Held', NO_BYTES), grpc.call('test.Echo/Held', NO_BYTES)]
    const got = [await held.next(), await held.next()]
    const text = 'open calls of all connections: 2 of at most 4 in use'
    await expect(ttrpc.call('test.Echo', 'Echo', NO_BYTES)).rejects.toMatchObject({
      code: 'RESOURCE_EXHAUSTED',
      message: text,
    })
    await expect(grpc.call('test.Echo/Echo', NO_BYTES)).rejects.toMatchObject({
      code: status.RESOURCE_EXHAUSTED,
      details: text,
    })
    await expectCheckServed()
    for (const each of got) each.answer({ ok: true, payload: NO_BYTES })
    await Promise.all(calls)
    expect(await grpc.call('test.Echo/Echo', NO_BYTES)).toHaveLength(0)
    while (used('calls') > 0) await turns(1)
  })

  it('count incomplete gRPC messages, and refuse the one that exceeds the limit', async () => {
    await start(6 * MIB)
    const session = await openHttp2()
    openCall(session, 'test.Echo/Echo').end(grpcMessage(NO_BYTES))
    const streams = [1, 2].map(() => {
      const stream = openCall(session, 'test.Echo/Echo')
      stream.write(grpcMessage(Buffer.alloc(4 * MIB - 100)).subarray(0, -1))
      return stream
    })
    const refused = await Promise.race(
      streams.map((stream) => once(stream, 'response').then(([headers]) => headers)),
    )
    expect(refused).toMatchObject({ 'grpc-status': '8' })
    await expectCheckServed()
    session.destroy()
    while (used('bytes') > 0) await turns(1)
    expect(used('calls')).toBe(0)
  })

  it('replace answers that are not read, and report that to the method', async () => {
    await start(6 * MIB, 100)
    const session = await openHttp2(0)
    const outcomes: boolean[] = []
    for (let call = 0; call < 3; call += 1) {
      openCall(session, 'test.Echo/Held').end(grpcMessage(NO_BYTES))
      const { answer } = await held.next()
      const delivered = (written: boolean) => outcomes.push(written)
      answer({ ok: true, payload: Buffer.alloc(2.5 * MIB), delivered })
    }
    while (outcomes.length < 1) await turns(1)
    expect(outcomes).toEqual([false])
    expect(used('bytes')).toBeGreaterThan(5 * MIB)
    await expectCheckServed()
    session.destroy()
    while (outcomes.length < 3) await turns(1)
    expect(outcomes).toEqual([false, false, false])
    expect(used('bytes')).toBe(0)
  })

  it('serve no more requests of a peer that does not read its answers', async () => {
    await start(64 * MIB, 100)
    const socket = await caller()
    socket.pause()
    const server = running.accepted.at(-1)
    const payload = Buffer.alloc(30_000)
    for (let count = 0; count < 200; count += 1) socket.write(frame(3 + 2 * count, 'Echo', payload))
    while (server?.writableNeedDrain === false) await turns(1)
    await turns(20)
    expect(server?.writableLength).toBeLessThan(256 * 1024)
    let bytes = 0
    socket.resume().on('data', (chunk: Buffer) => {
      bytes += chunk.length
    })
    while (bytes < 200 * 30_000) await turns(1)
    expect(used('bytes')).toBe(0)
  })

  describe('on streams', () => {
    const LIST = grpcMessage(Buffer.from([0x3a, 0]))

    it('bound how many are open on a connection, and in all', async () => {
      await start(8 * MIB)
      const session = await openHttp2()
      const most = LIMITS.connection.streams
      for (let count = 0; count < most; count += 1) openCall(session, REFLECTION).write(LIST)
      while (used('streams') < most) await turns(1)
      const [headers] = await once(openCall(session, REFLECTION), 'response')
      expect(headers).toMatchObject({
        'grpc-status': '8',
        'grpc-message': encodeURI(`${most} streams are open on this connection`),
      })
      session.destroy()
      while (used('streams') > 0) await turns(1)
    })

    it('refuse a long message', async () => {
      await start(8 * MIB)
      const stream = openCall(await openHttp2(), REFLECTION)
      stream.write(grpcMessage(Buffer.alloc(LIMITS.streamMessageBytes + 1)))
      const [headers] = await once(stream, 'response')
      expect(headers).toMatchObject({ 'grpc-status': '8' })
    })

    it('read no further question while the previous answer is unread', async () => {
      await start(8 * MIB)
      const stream = openCall(await openHttp2(0), REFLECTION)
      const name = Buffer.from('agent.proto')
      const question = grpcMessage(Buffer.concat([Buffer.from([0x1a, name.length]), name]))
      for (let count = 0; count < 2000; count += 1) stream.write(question)
      while (used('bytes') === 0) await turns(1)
      await turns(50)
      expect(used('bytes')).toBeLessThan(200_000)
    })
  })
})
