import { createServer, type Server } from 'node:net'
import { join } from 'node:path'
import type { ClientDuplexStream, Metadata, ServiceError } from '@grpc/grpc-js'
import { Metadata as GrpcMetadata } from '@grpc/grpc-js'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { serveGrpc } from '../../../src/rpc/grpc/server.ts'
import { Totals } from '../../../src/rpc/limits.ts'
import type { DuplexMethod, IncomingCall } from '../../../src/rpc/method.ts'
import { startTimer } from '../../../src/rpc/timer.ts'
import { aborted } from '../../support/rpc/fake-methods.ts'
import { type GrpcClient, grpcClient } from '../../support/rpc/grpc-client.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

const MOST_BYTES = 8192

describe('a method with streams in both directions', () => {
  let server: Server
  let grpc: GrpcClient
  let serve: DuplexMethod

  beforeEach(async () => {
    const path = join(temporaryFolder(), 'grpc.sock')
    const totals = new Totals()
    const duplexes = new Map([
      [
        'test.Echo/Both',
        { messageBytes: MOST_BYTES, serve: (...given: Parameters<DuplexMethod>) => serve(...given) },
      ],
    ])
    server = createServer((socket) => {
      const own = totals.addConnection(() => socket.destroy())
      if (own === undefined) throw new Error('refused')
      serveGrpc(socket, {
        methods: new Map(),
        duplexes,
        peer: 'test',
        firstBytes: Buffer.alloc(0),
        readDescriptors: async () => new Uint8Array(0),
        checkCall: async () => undefined,
        totals: own,
        startTimer,
      })
    })
    await new Promise<void>((resolve) => server.listen(path, resolve))
    grpc = grpcClient(path)
  })

  afterEach(() => {
    grpc.client.close()
    server.close()
  })

  function open(metadata: Metadata = new GrpcMetadata()) {
    const call: ClientDuplexStream<Buffer, Buffer> = grpc.client.makeBidiStreamRequest(
      '/test.Echo/Both',
      (bytes: Buffer) => bytes,
      (bytes: Buffer) => bytes,
      metadata,
    )
    const answers: string[] = []
    const ended = new Promise<string>((resolve) => {
      call.on('error', ({ code, details, metadata: trailers }: ServiceError) =>
        resolve([code, details, ...trailers.get('microvm-reason')].join(' ')),
      )
      call.on('end', () => resolve('end'))
    })
    call.on('data', (bytes: Buffer) => answers.push(bytes.toString()))
    return { call, answers, ended }
  }

  it('gets requests as they come, and its answers are sent as they are made', async () => {
    serve = async (requests, _call, send) => {
      for await (const request of requests) await send(Buffer.from(`<${Buffer.from(request)}>`))
      await send(Buffer.from('last'))
      return undefined
    }
    const { call, answers, ended } = open()
    call.write(Buffer.from('a'))
    await expect.poll(() => answers).toEqual(['<a>'])
    call.write(Buffer.from('b'))
    call.end()
    expect(await ended).toBe('end')
    expect(answers).toEqual(['<a>', '<b>', 'last'])
  })

  it('may answer and fail after it has read a part of its requests', async () => {
    serve = async (requests, _call, send) => {
      for await (const request of requests) {
        await send(request)
        break
      }
      await send(Buffer.from('more'))
      return { ok: false, code: 'NOT_FOUND', message: 'test: not found', reason: 'moved' }
    }
    const { call, answers, ended } = open()
    call.write(Buffer.from('a'))
    expect(await ended).toBe('5 test: not found moved')
    expect(answers).toEqual(['a', 'more'])
  })

  it('is told of a hang-up, and reads the metadata of its call', async () => {
    const begun = Promise.withResolvers<IncomingCall>()
    const over = Promise.withResolvers<void>()
    serve = async (requests, incoming) => {
      begun.resolve(incoming)
      await drain(requests)
      over.resolve()
      return undefined
    }
    const metadata = new GrpcMetadata()
    metadata.set('instance', 'a')
    const { call } = open(metadata)
    const { hangup, metadata: read } = await begun.promise
    expect([read?.('instance'), read?.('other')]).toEqual(['a', undefined])
    call.cancel()
    await aborted(hangup)
    await over.promise
  })

  it('gets requests up to its limit, and no larger ones', async () => {
    serve = async (requests, _call, send) => {
      await drain(requests, ({ length }) => send(Buffer.from(String(length))))
      return undefined
    }
    const { call, answers, ended } = open()
    call.write(Buffer.alloc(MOST_BYTES))
    await expect.poll(() => answers).toEqual([String(MOST_BYTES)])
    call.write(Buffer.alloc(MOST_BYTES + 1))
    expect(await ended).toBe(
      `8 message of ${MOST_BYTES + 1} bytes is larger than ${MOST_BYTES}, the limit of a stream`,
    )
  })
})

/** Until the requests end or throw. */
async function drain(
  requests: AsyncIterable<Uint8Array>,
  each: (request: Uint8Array) => Promise<void> = async () => {},
): Promise<void> {
  try {
    for await (const request of requests) await each(request)
  } catch {
    // The call is over.
  }
}
