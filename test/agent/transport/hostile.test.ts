import type { Socket } from 'node:net'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import type { TtrpcClient } from '../../../src/rpc/ttrpc/client.ts'
import { encodeRequestFrame } from '../../../src/rpc/ttrpc/messages.ts'
import { GO_REQUEST } from '../../fixtures/ttrpc-frames.ts'
import { type RunningTransport, runTransport } from '../../support/agent/running-transport.ts'
import { echo, tableOf } from '../../support/rpc/fake-methods.ts'
import type { GrpcClient } from '../../support/rpc/grpc-client.ts'

const PREFACE = Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n')
const SETTINGS = Buffer.from('000000040000000000', 'hex')

/** xorshift32: the same bytes in every run. */
function randomBytes(seed: number): (count: number) => Buffer {
  let state = seed
  const next = () => {
    state ^= state << 13
    state ^= state >>> 17
    state ^= state << 5
    return state & 0xff
  }
  return (count) => Buffer.from(Array.from({ length: count }, next))
}

function http2Frame(type: number, flags: number, streamId: number, payload: Buffer): Buffer {
  const header = Buffer.alloc(9)
  header.writeUIntBE(payload.length, 0, 3)
  header[3] = type
  header[4] = flags
  header.writeUInt32BE(streamId, 5)
  return Buffer.concat([header, payload])
}

/** An HPACK literal without indexing. */
function header(name: string, value: Buffer): Buffer {
  return Buffer.concat([Buffer.from([0, name.length]), Buffer.from(name), Buffer.from([value.length]), value])
}

function request(path: Buffer, contentType = 'application/grpc'): Buffer {
  return Buffer.concat([
    header(':method', Buffer.from('POST')),
    header(':scheme', Buffer.from('http')),
    header(':path', path),
    header('content-type', Buffer.from(contentType)),
  ])
}

describe('hostile bytes leave other clients unharmed', () => {
  let running: RunningTransport
  let ttrpc: TtrpcClient
  let grpc: GrpcClient

  beforeEach(async () => {
    running = await runTransport(tableOf({ 'test.Echo/Echo': echo }))
    ttrpc = await running.dialTtrpc()
    grpc = running.dialGrpc()
    await expectOthersServed()
  })

  afterEach(() => running.close())

  async function expectOthersServed(): Promise<void> {
    expect(await ttrpc.call('test.Echo', 'Echo', Buffer.from('x'))).toHaveLength(1)
    expect(await grpc.call('test.Echo/Echo', Buffer.from('x'))).toHaveLength(1)
  }

  /** Sends everything on a new connection, hangs up, and resolves when the connection is closed. */
  async function sendAlone(...chunks: readonly Buffer[]): Promise<void> {
    const socket = await running.dial()
    socket.resume()
    for (const chunk of chunks) socket.write(chunk)
    socket.end()
    await closed(socket)
  }

  async function closed(socket: Socket): Promise<void> {
    if (!socket.closed) await new Promise<void>((resolve) => socket.once('close', () => resolve()))
  }

  /** Expects that the other two clients are served, and that no other connection is open. */
  async function expectNothingLeft(): Promise<void> {
    await expectOthersServed()
    await expect.poll(() => running.accepted.filter((socket) => !socket.destroyed)).toHaveLength(2)
    await expect.poll(() => running.clock.sleeping).toBe(0)
  }

  it('random bytes', async () => {
    const random = randomBytes(1)
    for (let round = 0; round < 100; round += 1) await sendAlone(random(1 + round * 7))
    await expectNothingLeft()
  })

  it('random bytes within ttRPC frames', async () => {
    const random = randomBytes(2)
    for (let round = 0; round < 100; round += 1) {
      const payload = random(round)
      const frame = Buffer.concat([Buffer.from([0, 0, 0, payload.length, 0, 0, 0, 1, 1, 0]), payload])
      await sendAlone(GO_REQUEST, frame, random(9))
    }
    await expectNothingLeft()
  })

  it('a recorded request with one byte changed, and every prefix of it', async () => {
    for (let index = 0; index < GO_REQUEST.length; index += 1) {
      const changed = Buffer.from(GO_REQUEST)
      changed[index] = (changed[index] ?? 0) ^ 0xff
      await sendAlone(changed)
      await sendAlone(GO_REQUEST.subarray(0, index))
    }
    await expectNothingLeft()
  })

  it('frame lengths that are too large', async () => {
    const random = randomBytes(3)
    for (const length of ['00400001', '00ffffff', '7fffffff', 'ffffffff']) {
      await sendAlone(Buffer.from(`${length}000000010100`, 'hex'), random(1000))
      await sendAlone(GO_REQUEST, Buffer.from(`${length}000000030100`, 'hex'), random(1000))
    }
    await expectNothingLeft()
  })

  it('random names and texts', async () => {
    const random = randomBytes(4)
    for (let round = 0; round < 20; round += 1) {
      const name = random(200).toString('latin1')
      await sendAlone(
        encodeRequestFrame(1, {
          service: name,
          method: name,
          payload: random(10),
          timeoutNano: -(2n ** 63n),
        }),
        encodeRequestFrame(3, {
          service: '__proto__',
          method: 'constructor',
          payload: random(10),
          timeoutNano: 1n,
        }),
      )
    }
    await expectNothingLeft()
  })

  it('random bytes after the HTTP/2 preface', async () => {
    const random = randomBytes(5)
    for (let round = 0; round < 60; round += 1) {
      await sendAlone(PREFACE, random(1 + round * 5))
      await sendAlone(PREFACE, SETTINGS, random(1 + round * 5))
    }
    await expectNothingLeft()
  })

  it('every type of HTTP/2 frame', async () => {
    const random = randomBytes(6)
    for (let type = 0; type < 16; type += 1) {
      for (const streamId of [0, 1, 2]) {
        await sendAlone(PREFACE, SETTINGS, http2Frame(type, random(1)[0] ?? 0, streamId, random(type * 3)))
      }
    }
    await expectNothingLeft()
  })

  it('malformed headers of gRPC calls', async () => {
    const random = randomBytes(7)
    const paths = ['', '/', '/test.Echo', '/__proto__/constructor', '/test.Echo/Echo', '/ü/%00', '//////']
    for (const path of [...paths.map((text) => Buffer.from(text)), random(60), random(60)]) {
      for (const contentType of ['application/grpc', 'text/html', '']) {
        const headers = http2Frame(1, 4, 1, request(path, contentType))
        const data = http2Frame(0, 1, 1, Buffer.concat([Buffer.from([1, 0, 0, 0, 20]), random(20)]))
        await sendAlone(PREFACE, SETTINGS, headers, data)
      }
    }
    await expectNothingLeft()
  })

  it.each(['ffffffffH', '99999999H', '-1S', '1X', ''])(
    'the time limit %j of a gRPC call',
    async (timeout) => {
      const headers = Buffer.concat([
        request(Buffer.from('/test.Echo/Echo')),
        header('grpc-timeout', Buffer.from(timeout)),
      ])
      await sendAlone(PREFACE, SETTINGS, http2Frame(1, 4, 1, headers), http2Frame(0, 1, 1, Buffer.alloc(5)))
      await expectNothingLeft()
    },
  )

  it('gRPC calls that are opened and reset in a row', async () => {
    const calls: Buffer[] = []
    for (let streamId = 1; streamId < 2000; streamId += 2) {
      calls.push(http2Frame(1, 4, streamId, request(Buffer.from('/test.Echo/Echo'))))
      calls.push(http2Frame(3, 0, streamId, Buffer.from([0, 0, 0, 8])))
    }
    await sendAlone(PREFACE, SETTINGS, ...calls)
    await expectNothingLeft()
  })

  it('connections that stop after one byte', async () => {
    for (let count = 0; count < 50; count += 1) {
      const socket = await running.dial()
      socket.write((count % 2 === 0 ? PREFACE : GO_REQUEST).subarray(0, 1))
    }
    await expectNothingLeft()
  })

  it('a peer that never reads', async () => {
    const socket = await running.dial()
    socket.pause()
    const call = encodeRequestFrame(1, {
      service: 'test.Echo',
      method: 'Echo',
      payload: Buffer.alloc(1024 * 1024),
      timeoutNano: 0n,
    })
    for (let count = 0; count < 20; count += 1) socket.write(call)
    await expect.poll(() => running.accepted[2]?.writableNeedDrain).toBe(true)
    expect(running.accepted[2]?.writableLength).toBeLessThan(8 * 1024 * 1024)
    await expectOthersServed()
    socket.destroy()
    await expectNothingLeft()
  })
})
