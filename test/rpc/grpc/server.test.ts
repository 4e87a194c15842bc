import { connect } from 'node:http2'
import { connect as connectTo } from 'node:net'
import { Metadata, status } from '@grpc/grpc-js'
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import type { Method } from '../../../src/rpc/method.ts'
import { type RunningTransport, runTransport } from '../../support/agent/running-transport.ts'
import { aborted, echo, type HeldMethod, heldMethod, tableOf } from '../../support/rpc/fake-methods.ts'
import type { GrpcClient } from '../../support/rpc/grpc-client.ts'

const MIB = 1024 * 1024

describe('a gRPC connection', () => {
  let running: RunningTransport
  let grpc: GrpcClient
  let held: HeldMethod
  let answer: Method

  beforeEach(async () => {
    held = heldMethod()
    answer = echo
    running = await runTransport(
      tableOf({
        'test.Echo/Echo': echo,
        'test.Echo/Held': held.method,
        'test.Echo/Answer': (payload, call) => answer(payload, call),
      }),
    )
    grpc = running.dialGrpc()
  })

  afterEach(() => running.close())

  it('carries messages unchanged, even an empty one', async () => {
    expect((await grpc.call('test.Echo/Echo', Buffer.from('hello'))).toString()).toBe('hello')
    expect(await grpc.call('test.Echo/Echo', Buffer.alloc(0))).toHaveLength(0)
    const large = Buffer.alloc(3 * MIB, 'x')
    expect((await grpc.call('test.Echo/Echo', large)).equals(large)).toBe(true)
  })

  it('passes the peer to the method', async () => {
    const call = grpc.call('test.Echo/Held', Buffer.from('x'))
    const got = await held.next()
    expect(got.call).toMatchObject({ framing: 'grpc', peer: 'unix', timeoutMs: undefined })
    got.answer({ ok: true, payload: Buffer.from('y') })
    expect((await call).toString()).toBe('y')
  })

  it.each([
    ['of an unknown method', '/test.Echo/Unknown', 'application/grpc'],
    ['of another protocol', '/test.Echo/Echo', 'text/html'],
    ['of a known method', '/test.Echo/Held', 'application/grpc'],
  ])('survives a call %s that is reset at once', async (_what, path, contentType) => {
    const socket = await running.dial()
    // One write, so that the server reads the reset before it serves the call.
    socket.write(
      Buffer.concat([PREFACE, frame(4, 0, 0, ''), frame(1, 4, 1, callHeaders(path, contentType)), RESET]),
    )
    await new Promise((resolve) => socket.once('data', resolve))
    expect((await grpc.call('test.Echo/Echo', Buffer.from('hello'))).toString()).toBe('hello')
  })

  it('ends the calls of a client 60 s after it has said that it will close', async () => {
    const socket = await running.dial()
    // After this, Node would not notice that the client is gone.
    const brokenProtocol = frame(0, 1, 7, '0000000000')
    socket.write(Buffer.concat([PREFACE, frame(4, 0, 0, ''), HELD_CALL, GOAWAY, brokenProtocol]))
    const { call } = await held.next()
    socket.destroy()
    await expect.poll(() => running.clock.sleeping).toBe(1)
    running.clock.advance(60_000)
    await aborted(call.hangup)
    await expect.poll(() => running.clock.sleeping).toBe(0)
  })

  it('answers the calls of a client that has said that it will close', async () => {
    const client = connect('http://agent', { createConnection: () => connectTo(running.path) })
    const stream = client.request({
      ...{
        ':method': 'POST',
        ':path': '/test.Echo/Held',
        'content-type': 'application/grpc',
        te: 'trailers',
      },
    })
    stream.end(Buffer.alloc(5))
    const { answer } = await held.next()
    client.close()
    await expect.poll(() => running.clock.sleeping).toBe(1)
    answer({ ok: true, payload: Buffer.from('late') })
    const chunks: Buffer[] = []
    for await (const chunk of stream) chunks.push(chunk)
    expect(Buffer.concat(chunks).subarray(5).toString()).toBe('late')
    await expect.poll(() => running.clock.sleeping).toBe(0)
  })

  it('runs calls concurrently', async () => {
    const first = grpc.call('test.Echo/Held', Buffer.alloc(0))
    const got = await held.next()
    expect((await grpc.call('test.Echo/Echo', Buffer.from('second'))).toString()).toBe('second')
    got.answer({ ok: true, payload: Buffer.from('first') })
    expect((await first).toString()).toBe('first')
  })

  it('answers errors with texts of any characters and any length', async () => {
    for (const [message, details] of [
      ['no such thing: ü 100% \n', 'no such thing: ü 100% \n'],
      [`a${'\ud800'}b`, 'a\ufffdb'],
      [`mount ${'ü'.repeat(100_000)}: EINVAL`, /^mount ü{400,}…ü{400,}: EINVAL$/],
      [`mount ${'x '.repeat(3000)}: EINVAL`, /^mount (x ?){700,}…(x? ?){700,}: EINVAL$/],
    ] as const) {
      answer = async () => ({ ok: false, code: 'NOT_FOUND', message })
      const error = grpc.call('test.Echo/Answer', Buffer.alloc(0))
      await expect(error).rejects.toMatchObject({
        code: status.NOT_FOUND,
        details: expect.stringMatching(details),
      })
    }
  })

  it('answers an error with its reason', async () => {
    answer = async () => ({ ok: false, code: 'NOT_FOUND', message: 'test: not found', reason: 'moved' })
    const error = await grpc.call('test.Echo/Answer', Buffer.alloc(0)).catch((failure) => failure)
    expect(error).toMatchObject({ code: status.NOT_FOUND, details: 'test: not found' })
    expect(error.metadata.get('microvm-reason')).toEqual(['moved'])
  })

  it('survives a method that rejects', async () => {
    answer = async () => {
      throw new Error('a bug')
    }
    await expect(grpc.call('test.Echo/Answer', Buffer.alloc(0))).rejects.toMatchObject({
      code: status.INTERNAL,
      details: 'a bug',
    })
  })

  it('answers UNIMPLEMENTED for an unknown method', async () => {
    for (const name of ['test.Echo/Nothing', 'test.Nothing/Echo']) {
      await expect(grpc.call(name, Buffer.alloc(0))).rejects.toMatchObject({ code: status.UNIMPLEMENTED })
    }
  })

  it('refuses messages of more than 4 MiB in either direction, and keeps the connection', async () => {
    const tooLarge = grpc.call('test.Echo/Echo', Buffer.alloc(4 * MIB + 1))
    await expect(tooLarge).rejects.toMatchObject({
      code: status.RESOURCE_EXHAUSTED,
      details: 'Received message larger than max (4194305 vs 4194304)',
    })
    const deliveries: boolean[] = []
    answer = async () => ({
      ok: true,
      payload: Buffer.alloc(4 * MIB + 1),
      delivered: (written) => deliveries.push(written),
    })
    await expect(grpc.call('test.Echo/Answer', Buffer.alloc(0))).rejects.toMatchObject({
      code: status.RESOURCE_EXHAUSTED,
      details: 'Sent message larger than max (4194310 vs. 4194304)',
    })
    expect(await grpc.call('test.Echo/Echo', Buffer.alloc(4 * MIB))).toHaveLength(4 * MIB)
    expect(deliveries).toEqual([false])
  })

  it('passes the time limit to the method and aborts it at the deadline', async () => {
    // Client and server run in this process, and both use this clock.
    vi.useFakeTimers({ toFake: ['Date', 'setTimeout', 'clearTimeout'] })
    try {
      const call = grpc.call('test.Echo/Held', Buffer.alloc(0), { deadline: Date.now() + 60_000 })
      const got = await held.next()
      expect(got.call.timeoutMs).toBe(60_000)
      const late = expect(call).rejects.toMatchObject({ code: status.DEADLINE_EXCEEDED })
      vi.advanceTimersByTime(60_000)
      await late
      await aborted(got.call.hangup)
    } finally {
      vi.useRealTimers()
    }
  })

  it('cancels the method when the client cancels the call', async () => {
    const abort = new AbortController()
    const call = grpc.call('test.Echo/Held', Buffer.alloc(0), { signal: abort.signal })
    const got = await held.next()
    abort.abort()
    await expect(call).rejects.toMatchObject({ code: status.CANCELLED })
    expect(await aborted(got.call.hangup)).toMatchObject({ code: 'CANCELLED' })
    const delivered = Promise.withResolvers<boolean>()
    got.answer({ ok: true, payload: Buffer.alloc(0), delivered: delivered.resolve })
    expect(await delivered.promise).toBe(false)
    expect(await grpc.call('test.Echo/Echo', Buffer.from('x'))).toHaveLength(1)
  })

  it.each(['destroy', 'end'] as const)(
    'cancels the method when the client disconnects (%s)',
    async (leave) => {
      const socket = await running.dial()
      const session = connect('http://agent', { createConnection: () => socket })
      session.on('error', () => {})
      const request = session.request({
        ':method': 'POST',
        ':path': '/test.Echo/Held',
        'content-type': 'application/grpc',
      })
      request.on('error', () => {})
      request.end(Buffer.alloc(5))
      const got = await held.next()
      socket[leave]()
      expect(await aborted(got.call.hangup)).toMatchObject({ code: 'CANCELLED' })
      const delivered = Promise.withResolvers<boolean>()
      got.answer({ ok: true, payload: Buffer.alloc(0), delivered: delivered.resolve })
      expect(await delivered.promise).toBe(false)
      session.destroy()
    },
  )

  it('reports to the method that its response was delivered', async () => {
    const delivered = Promise.withResolvers<boolean>()
    answer = async () => ({ ok: true, payload: Buffer.alloc(8), delivered: delivered.resolve })
    await grpc.call('test.Echo/Answer', Buffer.alloc(0))
    expect(await delivered.promise).toBe(true)
  })

  it('reports to the method that its answer was not delivered when the client stops reading and closes', async () => {
    const delivered = Promise.withResolvers<boolean>()
    const call = grpc.call('test.Echo/Held', Buffer.alloc(0))
    const refused = expect(call).rejects.toBeDefined()
    const got = await held.next()
    got.answer({ ok: true, payload: Buffer.alloc(4 * MIB), delivered: delivered.resolve })
    running.accepted[0]?.destroy()
    await refused
    expect(await delivered.promise).toBe(false)
  })

  it('ignores metadata', async () => {
    const metadata = new Metadata()
    metadata.set('traceparent', '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01')
    const response = await new Promise<Buffer | undefined>((resolve, reject) => {
      grpc.client.makeUnaryRequest(
        '/test.Echo/Echo',
        (bytes: Buffer) => bytes,
        (bytes: Buffer) => bytes,
        Buffer.from('x'),
        metadata,
        (error, value) => (error === null ? resolve(value) : reject(error)),
      )
    })
    expect(response?.toString()).toBe('x')
  })
})

const PREFACE = Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n')
const RESET = frame(3, 0, 1, '00000008')

/** A frame of HTTP/2 (RFC 9113, section 4.1); its payload is in hex. */
function frame(type: number, flags: number, stream: number, payload: string): Buffer {
  const bytes = Buffer.from(payload, 'hex')
  const header = Buffer.alloc(9)
  header.writeUIntBE(bytes.length, 0, 3)
  header.writeUInt8(type, 3)
  header.writeUInt8(flags, 4)
  header.writeUInt32BE(stream, 5)
  return Buffer.concat([header, bytes])
}

/** POST by http, with this path and content type (RFC 7541, appendix A). */
function callHeaders(path: string, contentType: string): string {
  const text = (value: string) => Buffer.concat([Buffer.of(value.length), Buffer.from(value)]).toString('hex')
  return `838604${text(path)}0101610f10${text(contentType)}`
}

const HELD_CALL = Buffer.concat([
  frame(1, 4, 1, callHeaders('/test.Echo/Held', 'application/grpc')),
  frame(0, 1, 1, '0000000000'),
])
const GOAWAY = frame(7, 0, 0, '0000000000000000')
