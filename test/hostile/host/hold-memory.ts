import { once } from 'node:events'
import type { ClientHttp2Session, ClientHttp2Stream } from 'node:http2'
import { connect, type Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { encodeRequestFrame } from '../../../src/rpc/ttrpc/messages.ts'
import { grpcMessage, http2On, openCall } from '../../support/rpc/raw-http2.ts'

/**
 * A caller that makes the agent hold memory. Arguments: the agent's unix socket, the way, the number of connections. Prints
 * `done` once everything has been sent or is refused, and holds it until stdin ends.
 */

const MIB = 1024 * 1024
/** A peer that takes nothing for this long takes nothing more. */
const STUCK_MS = 1000
const [path = '', way = '', count = '1'] = process.argv.slice(2)

const NO_BYTES = Buffer.alloc(0)

/** A message with an unknown field of this size, which every method ignores. */
function padded(bytes: number): Buffer {
  const varint = [0, 7, 14, 21].map((shift) => ((bytes >>> shift) & 0x7f) | (shift < 21 ? 0x80 : 0))
  return Buffer.concat([Buffer.from([0xa2, 0x06, ...varint]), Buffer.alloc(bytes)])
}

const LONG = padded(4 * MIB - 200)

function frame(streamId: number, service: string, method: string, payload: Buffer = NO_BYTES): Buffer {
  return encodeRequestFrame(streamId, { service, method, payload, timeoutNano: 0n })
}

async function send(socket: Socket, bytes: Buffer): Promise<void> {
  for (let offset = 0; offset < bytes.length && !socket.destroyed; offset += MIB) {
    if (socket.write(bytes.subarray(offset, offset + MIB))) continue
    const drained = new Promise((resolve) => socket.once('drain', () => resolve(true)))
    if ((await Promise.race([drained, sleep(STUCK_MS)])) !== true) return
  }
}

async function dial(): Promise<Socket> {
  const socket = connect(path)
  socket.on('error', () => {})
  await once(socket, 'connect')
  return socket
}

async function ttrpc(): Promise<Socket> {
  const socket = await dial()
  socket.write(frame(1, 'grpc.Health', 'Check'))
  await once(socket, 'data')
  return socket
}

async function http2(settings = {}): Promise<ClientHttp2Session> {
  return http2On(await dial(), settings)
}

function write(stream: ClientHttp2Stream, bytes: Buffer): Promise<unknown> {
  return Promise.race([new Promise((resolve) => stream.write(bytes, resolve)), sleep(STUCK_MS)])
}

const WAYS: Readonly<Record<string, () => Promise<unknown>>> = {
  'incomplete frames': async () => {
    const socket = await ttrpc()
    await send(socket.resume(), frame(3, 'grpc.AgentService', 'GetOOMEvent', LONG).subarray(0, -1))
  },
  'requests of calls that wait': async () => {
    const socket = await ttrpc()
    for (let call = 0; call < 8; call += 1) {
      await send(socket.resume(), frame(3 + 2 * call, 'grpc.AgentService', 'GetOOMEvent', LONG))
    }
  },
  'calls that wait': async () => {
    const calls = Array.from({ length: 1024 }, (_, call) =>
      frame(3 + 2 * call, 'grpc.AgentService', 'GetOOMEvent'),
    )
    await send((await ttrpc()).resume(), Buffer.concat(calls))
  },
  'answers that nobody reads': async () => {
    const calls = Array.from({ length: 500 }, (_, call) =>
      frame(3 + 2 * call, 'grpc.AgentService', 'GetMetrics'),
    )
    await send((await ttrpc()).pause(), Buffer.concat(calls))
  },
  'incomplete gRPC messages': async () => {
    const session = await http2()
    const whole = grpcMessage(LONG)
    const streams = Array.from({ length: 8 }, () => openCall(session, 'grpc.AgentService/GetOOMEvent'))
    await Promise.all(streams.map((stream) => write(stream, whole.subarray(0, -1))))
  },
  'gRPC calls that wait': async () => {
    const session = await http2()
    for (let call = 0; call < 1000; call += 1)
      openCall(session, 'grpc.AgentService/GetOOMEvent').end(grpcMessage(NO_BYTES))
    await sleep(STUCK_MS)
  },
  'gRPC answers without a window': async () => {
    const session = await http2({ initialWindowSize: 0 })
    for (let call = 0; call < 200; call += 1)
      openCall(session, 'grpc.AgentService/GetMetrics').end(grpcMessage(NO_BYTES))
    await sleep(STUCK_MS)
  },
  'reflection without a window': async () => {
    const session = await http2({ initialWindowSize: 0 })
    const name = Buffer.from('agent.proto')
    const questions = grpcMessage(Buffer.concat([Buffer.from([0x1a, name.length]), name]))
    const streams = Array.from({ length: 16 }, () =>
      openCall(session, 'grpc.reflection.v1.ServerReflection/ServerReflectionInfo'),
    )
    const many = Buffer.concat(Array.from({ length: 1000 }, () => questions))
    await Promise.all(streams.map((stream) => write(stream, many)))
  },
  'event streams without a window': async () => {
    const session = await http2({ initialWindowSize: 0 })
    const streams = Array.from({ length: 16 }, () =>
      openCall(session, 'microvm.agent.v1.Introspection/StreamEvents'),
    )
    await Promise.all(streams.map((stream) => write(stream, grpcMessage(Buffer.alloc(0)))))
  },
  'SETTINGS and PING frames': async () => {
    const socket = await dial()
    const settings = Buffer.from('000000040000000000', 'hex')
    const ping = Buffer.from('0000080600000000000000000000000000', 'hex')
    socket.write(Buffer.concat([Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'), settings]))
    await once(socket, 'data')
    const flood = Array.from({ length: 50_000 }, () => Buffer.concat([settings, ping]))
    await send(socket.pause(), Buffer.concat(flood))
  },
}

await Promise.all(Array.from({ length: Number(count) }, () => WAYS[way]?.()))
process.stdout.write('done\n')
process.stdin.once('end', () => process.exit()).resume()
