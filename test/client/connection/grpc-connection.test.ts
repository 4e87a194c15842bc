import { constants, createServer } from 'node:http2'
import { connect, createServer as createSilentServer, type Socket } from 'node:net'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { grpcConnection } from '../../../src/client/connection/grpc-connection.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

/** A gRPC message of three bytes without its last byte. */
const UNFINISHED = Buffer.from([0, 0, 0, 0, 3, 1, 2])

describe('a gRPC connection', () => {
  let path: string
  let server: ReturnType<typeof createServer>
  const sockets: Socket[] = []
  beforeEach(async () => {
    path = join(temporaryFolder(), 'socket')
    server = createServer()
    server.on('connection', (socket) => sockets.push(socket)).on('sessionError', () => {})
    await new Promise<void>((resolve) => server.listen(path, resolve))
  })
  afterEach(() => {
    for (const socket of sockets.splice(0)) socket.destroy()
    server.close()
  })

  it('tells whether the server has spoken', async () => {
    expect(await grpcConnection(connect(path)).greeted).toBe(true)
    const silent = createSilentServer((socket) => socket.destroy())
    await new Promise<void>((resolve) => silent.listen(`${path}2`, resolve))
    expect(await grpcConnection(connect(`${path}2`)).greeted).toBe(false)
    silent.close()
  })

  it('is lost when it closes in the middle of an answer', async () => {
    server.on('stream', (stream) => {
      stream.on('error', () => {}).respond({ 'content-type': 'application/grpc' }, { waitForTrailers: true })
      stream.write(UNFINISHED, () => {
        for (const socket of sockets) socket.destroy()
      })
    })
    const call = grpcConnection(connect(path)).call('service', 'Method', new Uint8Array())
    await expect(call).rejects.toMatchObject({
      code: 'UNAVAILABLE',
      message: expect.stringMatching(/^grpc: closed/),
    })
  })

  /** Answers the next stream with the bytes, one write for each, and the status. */
  function answerWith(writes: readonly Buffer[], trailers: Readonly<Record<string, string>>): void {
    server.on('stream', (stream) => {
      stream.on('error', () => {}).respond({ 'content-type': 'application/grpc' }, { waitForTrailers: true })
      stream.once('wantTrailers', () => stream.sendTrailers(trailers))
      for (const bytes of writes) stream.write(bytes)
      stream.end()
    })
  }

  async function answers(): Promise<readonly string[]> {
    const call = grpcConnection(connect(path)).stream('service', 'Method')
    call.end()
    const texts: string[] = []
    for await (const answer of call.answers) texts.push(Buffer.from(answer).toString())
    return texts
  }

  const message = (text: string) => Buffer.concat([Buffer.from([0, 0, 0, 0, text.length]), Buffer.from(text)])

  it('reads the messages of a stream, however they are cut', async () => {
    const whole = Buffer.concat([message('one'), message(''), message('three')])
    answerWith([whole.subarray(0, 2), whole.subarray(2, 7), whole.subarray(7)], { 'grpc-status': '0' })
    expect(await answers()).toEqual(['one', '', 'three'])
  })

  it('throws the status of a stream after its messages', async () => {
    answerWith([message('one')], { 'grpc-status': '5', 'grpc-message': 'gone%20away' })
    await expect(answers()).rejects.toMatchObject({ code: 'NOT_FOUND', message: 'gone away' })
  })

  it.each([
    ['moving', 'moving'],
    ['asleep', undefined],
  ])('throws with the reason %s of a server the reason %s', async (sent, reason) => {
    answerWith([message('one')], { 'grpc-status': '10', 'microvm-reason': sent })
    await expect(answers()).rejects.toMatchObject({ code: 'ABORTED', reason })
  })

  it('refuses a message that is too large before it has come', async () => {
    answerWith([Buffer.from([0, 0xff, 0xff, 0xff, 0xff])], { 'grpc-status': '0' })
    await expect(answers()).rejects.toMatchObject({ code: 'RESOURCE_EXHAUSTED' })
  })

  it('ends a stream that its caller reads no further', async () => {
    const reset = new Promise<number>((resolve) => {
      server.on('stream', (stream) => {
        stream.on('error', () => {}).respond({ 'content-type': 'application/grpc' })
        stream.write(message('one'))
        stream.once('close', () => resolve(stream.rstCode ?? 0))
      })
    })
    const call = grpcConnection(connect(path)).stream('service', 'Method')
    for await (const _ of call.answers) break
    expect(await reset).toBe(constants.NGHTTP2_CANCEL)
  })
})
