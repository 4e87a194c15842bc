import { once } from 'node:events'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { StatusCode } from '../../../src/base/errors.ts'
import { LIMITS } from '../../../src/rpc/limits.ts'
import type { Method, Outcome } from '../../../src/rpc/method.ts'
import { allocateFrame } from '../../../src/rpc/ttrpc/frame.ts'
import { TtrpcServerConnection } from '../../../src/rpc/ttrpc/server-connection.ts'
import {
  GO_REQUEST,
  GO_REQUEST_TO_UNKNOWN_SERVICE,
  GO_REQUEST_WITHOUT_PAYLOAD,
} from '../../fixtures/ttrpc-frames.ts'
import { FakeClock } from '../../support/fakes/fake-clock.ts'
import { brokeredPair, forgetfulLink } from '../../support/rpc/brokered-pair.ts'
import { aborted, echo, type HeldMethod, heldMethod, tableOf, turns } from '../../support/rpc/fake-methods.ts'
import { type RawPeer, rawPeer } from '../../support/rpc/raw-peer.ts'
import type { SocketPair } from '../../support/rpc/socket-pair.ts'
import { connectionTotals } from '../../support/rpc/totals.ts'

const MIB = 1024 * 1024
const text = (bytes: Uint8Array) => Buffer.from(bytes).toString()

describe('TtrpcServerConnection', () => {
  let sockets: SocketPair
  let peer: RawPeer
  let held: HeldMethod
  let clock: FakeClock
  let answer: Method
  let connection: TtrpcServerConnection
  /** The numbers of the requests that the link reported as refused. */
  let refused: bigint[]

  beforeEach(async () => {
    sockets = await brokeredPair()
    held = heldMethod()
    clock = new FakeClock()
    answer = echo
    refused = []
    connection = new TtrpcServerConnection(sockets.server, {
      methods: tableOf({
        'test.Echo/Echo': echo,
        'test.Echo/Held': held.method,
        'test.Echo/Answer': (payload, call) => answer(payload, call),
      }),
      peer: 'vsock 2:77',
      startTimer: (ms, expired) => clock.startTimer(ms, expired),
      limits: { ...LIMITS.connection, openCalls: 3, requestBytes: 6 * MIB, answerBytes: 6 * MIB },
      totals: connectionTotals(),
      link: { ...forgetfulLink, refused: (number) => void refused.push(number) },
    })
    connection.start()
    peer = rawPeer(sockets.client)
  })

  afterEach(() => sockets.close())

  it('answers the recorded frames of a Go client', async () => {
    peer.send(GO_REQUEST, GO_REQUEST_WITHOUT_PAYLOAD, GO_REQUEST_TO_UNKNOWN_SERVICE)
    const responses = [await peer.response(), await peer.response(), await peer.response()]
    expect(responses.find(({ streamId }) => streamId === 1)).toMatchObject({ code: 0 })
    expect(responses.find(({ streamId }) => streamId === 3)).toMatchObject({ code: 0 })
    expect(responses.find(({ streamId }) => streamId === 5)).toMatchObject({
      code: StatusCode.UNIMPLEMENTED,
      message: 'test.Nothing service does not exist',
    })
  })

  it('passes the peer and the time limit to the method', async () => {
    peer.request(1, 'test.Echo', 'Held', { payload: Buffer.from('x'), timeoutNano: 1_500_000n })
    peer.request(3, 'test.Echo', 'Held', { timeoutNano: -1n })
    peer.request(5, 'test.Echo', 'Held')
    const calls = [await held.next(), await held.next(), await held.next()]
    expect(calls.map(({ call }) => call.timeoutMs)).toEqual([2, 0, undefined])
    expect(calls[0]).toMatchObject({ call: { peer: 'vsock 2:77', framing: 'ttrpc' } })
    expect(text(calls[0]?.payload ?? Buffer.alloc(0))).toBe('x')
  })

  it('answers a long call after later, shorter ones', async () => {
    peer.request(1, 'test.Echo', 'Held')
    peer.request(3, 'test.Echo', 'Echo', { payload: Buffer.from('first') })
    expect(await peer.response()).toMatchObject({ streamId: 3, code: 0 })
    const call = await held.next()
    call.answer({ ok: true, payload: Buffer.from('second') })
    expect(await peer.response()).toMatchObject({ streamId: 1, code: 0 })
  })

  it('answers errors with texts of limited length', async () => {
    answer = async () => ({ ok: false, code: 'NOT_FOUND', message: 'gone '.repeat(MIB) })
    peer.request(1, 'test.Echo', 'Answer')
    const response = await peer.response()
    expect(response.code).toBe(StatusCode.NOT_FOUND)
    expect(response.message).toHaveLength(16 * 1024)
  })

  it('survives a method that rejects', async () => {
    answer = async () => {
      throw new Error('a bug')
    }
    peer.request(1, 'test.Echo', 'Answer')
    expect(await peer.response()).toMatchObject({ code: StatusCode.INTERNAL, message: 'a bug' })
  })

  describe('keeps the connection and refuses', () => {
    afterEach(async () => {
      peer.request(99, 'test.Echo', 'Echo', { payload: Buffer.from('still here') })
      expect(await peer.response()).toMatchObject({ streamId: 99, code: 0 })
    })

    it('an even stream id', async () => {
      peer.request(2, 'test.Echo', 'Echo')
      expect(await peer.response()).toMatchObject({
        streamId: 2,
        code: StatusCode.INVALID_ARGUMENT,
        message: 'stream id must be odd',
      })
    })

    it('a stream id in use', async () => {
      peer.request(1, 'test.Echo', 'Held')
      peer.request(1, 'test.Echo', 'Echo')
      expect(await peer.response()).toMatchObject({
        streamId: 1,
        code: StatusCode.INVALID_ARGUMENT,
        message: 'stream id 1 is in use by a call in progress',
      })
    })

    it('an unknown method of a known service', async () => {
      peer.request(1, 'test.Echo', 'Nothing')
      expect(await peer.response()).toMatchObject({
        code: StatusCode.UNIMPLEMENTED,
        message: 'test.Echo/Nothing method is not implemented',
      })
    })

    it('a request that is not a message', async () => {
      peer.send(Buffer.from('000000020000000101000aff', 'hex'))
      expect(await peer.response()).toMatchObject({ streamId: 1, code: StatusCode.INVALID_ARGUMENT })
    })

    it.each([0, 2, 4, 255])('a message of type %i', async (type) => {
      peer.send(allocateFrame({ payloadBytes: 0, streamId: 1, type, flags: 0 }))
      expect(await peer.response()).toMatchObject({
        streamId: 1,
        code: StatusCode.INVALID_ARGUMENT,
        message: `message type ${type} is not a request`,
      })
    })

    it('data on a stream, which cancels its call', async () => {
      peer.request(1, 'test.Echo', 'Held')
      const { call, answer: reply } = await held.next()
      peer.send(Buffer.from('000000010000000103017a', 'hex'))
      expect(await peer.response()).toMatchObject({
        streamId: 1,
        code: StatusCode.INVALID_ARGUMENT,
        message: 'stream 1 takes no data: all methods are unary',
      })
      expect(call.hangup.aborted).toBe(true)
      reply({ ok: true, payload: Buffer.from('never sent') })
    })

    it('a request of more than 4 MiB', async () => {
      peer.send(allocateFrame({ payloadBytes: 16 * MIB, streamId: 1, type: 1, flags: 0 }))
      expect(await peer.response()).toMatchObject({
        streamId: 1,
        code: StatusCode.RESOURCE_EXHAUSTED,
        message: 'message of 16777216 bytes is larger than 4194304',
      })
    })

    it('more calls at a time than the limit', async () => {
      for (const streamId of [1, 3, 5, 7]) peer.request(streamId, 'test.Echo', 'Held')
      expect(await peer.response()).toMatchObject({ streamId: 7, code: StatusCode.RESOURCE_EXHAUSTED })
      // The previous agent's reservation for the request is dropped.
      expect(refused).toEqual([4n])
      const first = await held.next()
      first.answer({ ok: true, payload: Buffer.alloc(0) })
      expect(await peer.response()).toMatchObject({ streamId: 1, code: 0 })
    })

    it('more request bytes at a time than the limit', async () => {
      const payload = Buffer.alloc(3 * MIB)
      for (const streamId of [1, 3]) peer.request(streamId, 'test.Echo', 'Held', { payload })
      expect(await peer.response()).toMatchObject({ streamId: 3, code: StatusCode.RESOURCE_EXHAUSTED })
      const first = await held.next()
      first.answer({ ok: true, payload: Buffer.alloc(0) })
      expect(await peer.response()).toMatchObject({ streamId: 1, code: 0 })
      peer.request(5, 'test.Echo', 'Echo', { payload })
      expect(await peer.response()).toMatchObject({ streamId: 5, code: 0 })
    })

    it('a response of more than 4 MiB', async () => {
      const deliveries: boolean[] = []
      answer = async () => ({
        ok: true,
        payload: Buffer.alloc(4 * MIB - 5),
        delivered: (written) => deliveries.push(written),
      })
      peer.request(1, 'test.Echo', 'Answer')
      expect(await peer.response()).toMatchObject({ code: StatusCode.RESOURCE_EXHAUSTED })
      expect(deliveries).toEqual([false])
    })
  })

  it('ignores the bare end of a stream', async () => {
    peer.request(1, 'test.Echo', 'Held')
    peer.send(Buffer.from('00000000000000010305', 'hex'))
    const { call, answer: reply } = await held.next()
    peer.request(3, 'test.Echo', 'Echo')
    expect(await peer.response()).toMatchObject({ streamId: 3 })
    expect(call.hangup.aborted).toBe(false)
    reply({ ok: true, payload: Buffer.alloc(0) })
    expect(await peer.response()).toMatchObject({ streamId: 1, code: 0 })
  })

  it('carries the largest response', async () => {
    const payload = Buffer.alloc(4 * MIB - 2 - 5, 7)
    answer = async () => ({ ok: true, payload })
    peer.request(1, 'test.Echo', 'Answer')
    const response = await peer.response()
    expect(payload.equals(response.payload)).toBe(true)
  })

  describe('reports to the method whether its response was delivered:', () => {
    function watched(): { outcome: Outcome; delivered: Promise<boolean> } {
      const { promise, resolve } = Promise.withResolvers<boolean>()
      return { outcome: { ok: true, payload: Buffer.alloc(8), delivered: resolve }, delivered: promise }
    }

    it('true once it is written', async () => {
      const { outcome, delivered } = watched()
      peer.request(1, 'test.Echo', 'Held')
      const call = await held.next()
      call.answer(outcome)
      expect(await delivered).toBe(true)
    })

    it('no, when the client has closed, which cancels the call', async () => {
      const { outcome, delivered } = watched()
      peer.request(1, 'test.Echo', 'Held')
      const { call, answer: reply } = await held.next()
      sockets.client.destroy()
      expect(await aborted(call.hangup)).toMatchObject({ code: 'CANCELLED' })
      reply(outcome)
      expect(await delivered).toBe(false)
    })

    it('no, when the client closes while the answer is being written', async () => {
      const { promise: delivered, resolve } = Promise.withResolvers<boolean>()
      sockets.client.pause()
      peer.request(1, 'test.Echo', 'Held')
      const call = await held.next()
      call.answer({ ok: true, payload: Buffer.alloc(4 * MIB - 100), delivered: resolve })
      await turns()
      sockets.client.destroy()
      expect(await delivered).toBe(false)
    })
  })

  it('sends an answer with separate bulk bytes, and continues reading once it is written', async () => {
    const bulk = Buffer.alloc(100_000, 'x')
    answer = async () => ({ ok: true, payload: Buffer.from('head'), bulk })
    for (let streamId = 1; streamId < 7; streamId += 2) {
      peer.request(streamId, 'test.Echo', 'Answer')
      const { payload } = await peer.response()
      expect(Buffer.from(payload).equals(Buffer.concat([Buffer.from('head'), bulk]))).toBe(true)
    }
  })

  it('keeps nothing of a chunk, whose memory the next read may use', async () => {
    // After the connection's own listener.
    sockets.server.on('data', (chunk: Buffer) => chunk.fill(0))
    peer.request(1, 'test.Echo', 'Held', { payload: Buffer.from('kept') })
    const { payload } = await held.next()
    expect(text(payload)).toBe('kept')
    const ids = Array.from({ length: 3 * LIMITS.connection.requestsAtOnce }, (_, index) => 3 + 2 * index)
    // Refused, because few calls may be open.
    for (const id of ids) peer.request(id, 'test.Echo', `Method${id}`)
    for (const id of ids) {
      const message = `test.Echo/Method${id} method is not implemented`
      expect(await peer.response()).toMatchObject({ streamId: id, message })
    }
  })

  it('treats the end of the client’s side as the end of the connection', async () => {
    peer.request(1, 'test.Echo', 'Held')
    const { call } = await held.next()
    sockets.client.end()
    await aborted(call.hangup)
    await peer.closed
    expect(sockets.server.destroyed).toBe(true)
  })

  it('stops reading from a peer that does not read its responses', async () => {
    let calls = 0
    answer = async (payload) => {
      calls += 1
      return { ok: true, payload }
    }
    sockets.client.pause()
    const payload = Buffer.alloc(MIB)
    for (let id = 1; id < 80; id += 2) peer.request(id, 'test.Echo', 'Answer', { payload })
    await new Promise<void>((resolve) => {
      const check = () => (sockets.server.isPaused() ? resolve() : setImmediate(check))
      check()
    })
    await turns(50)
    expect(calls).toBeLessThan(10)
    expect(sockets.server.writableLength).toBeLessThan(8 * MIB)
    sockets.client.resume()
    const ids = new Set<number>()
    while (ids.size < 40) ids.add((await peer.response()).streamId)
    expect(calls).toBe(40)
  })

  it('closes the connection of a peer that lets answers pile up', async () => {
    sockets.client.pause()
    let answers = 0
    answer = async () => {
      answers += 1
      return { ok: true, payload: Buffer.alloc(4 * MIB - 100) }
    }
    const closed = once(sockets.server, 'close')
    for (let streamId = 1; streamId < 200; streamId += 2) peer.request(streamId, 'test.Echo', 'Answer')
    await closed
    expect(answers).toBeLessThanOrEqual(3)
  })

  describe('drain', () => {
    it('closes an idle connection at once', async () => {
      connection.drain()
      await peer.closed
      expect(sockets.server.destroyed).toBe(true)
    })

    it('answers calls in progress first, and refuses new ones', async () => {
      peer.request(1, 'test.Echo', 'Held')
      const call = await held.next()
      connection.drain()
      peer.request(3, 'test.Echo', 'Echo')
      expect(await peer.response()).toMatchObject({ streamId: 3, code: StatusCode.UNAVAILABLE })
      call.answer({ ok: true, payload: Buffer.from('done') })
      expect(await peer.response()).toMatchObject({ streamId: 1, code: 0 })
      await peer.closed
    })
  })
})
