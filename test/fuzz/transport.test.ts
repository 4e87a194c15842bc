import { type ClientHttp2Session, connect, type OutgoingHttpHeaders } from 'node:http2'
import type { Duplex } from 'node:stream'
import { setImmediate as turn } from 'node:timers/promises'
import fc from 'fast-check'
import { afterAll, beforeAll, describe } from 'vitest'
import { StatusCode } from '../../src/base/errors.ts'
import { Totals } from '../../src/rpc/limits.ts'
import { encodeRequestFrame } from '../../src/rpc/ttrpc/messages.ts'
import { type RunningTransport, runTransport } from '../support/agent/running-transport.ts'
import { anyMethods } from '../support/fuzz/any-methods.ts'
import { anyBytes, CUTS, inPieces, mutated } from '../support/fuzz/bytes.ts'
import { fuzz } from '../support/fuzz/fuzz.ts'
import { recordedCalls, words } from '../support/fuzz/requests.ts'
import { duplexPair } from '../support/rpc/duplex-pair.ts'
import { grpcMessage } from '../support/rpc/raw-http2.ts'

const CALLS = recordedCalls().map(({ service, method, requestBytes }) => ({
  path: `/${service}/${method}`,
  requestBytes,
}))
const FRAMES = recordedCalls().map(({ stream, service, method, requestBytes }) =>
  encodeRequestFrame(stream, { service, method, payload: requestBytes, timeoutNano: 0n }),
)

/** Node's bytes for a few recorded calls and a stream: the preface and the frames after it. */
const session = await recordSession()

const FRAME_HEADER_BYTES = 9
const PREFACE = session.subarray(0, 24)
const RECORDED = framesIn(session.subarray(24))

/** A frame of any type, known or unknown, with any flags, for any stream. */
const anyFrame = fc
  .tuple(
    fc.nat(12),
    fc.nat(0xff),
    fc.oneof(fc.nat(9), fc.constantFrom(0x7fffffff, 0xffffffff)),
    fc.oneof(
      fc.uint8Array({ maxLength: 40 }),
      mutated(RECORDED.map((frame) => frame.subarray(FRAME_HEADER_BYTES))),
    ),
    fc.oneof(
      { weight: 9, arbitrary: fc.constant(0) },
      { weight: 1, arbitrary: fc.constantFrom(1, -1, 0x4000, 0xfffffe) },
    ),
  )
  .map(([type, flags, stream, payload, more]) => {
    const header = Buffer.alloc(FRAME_HEADER_BYTES)
    header.writeUIntBE(Math.max(0, Math.min(payload.length + more, 0xffffff)), 0, 3)
    header[3] = type
    header[4] = flags
    header.writeUInt32BE(stream, 5)
    return Buffer.concat([header, payload])
  })

const BYTES = fc.oneof(
  {
    weight: 6,
    arbitrary: fc
      .tuple(
        fc.nat(RECORDED.length),
        fc.array(fc.oneof(anyFrame, mutated(RECORDED), fc.constantFrom(...RECORDED)), { maxLength: 8 }),
      )
      .map(([first, rest]) => Buffer.concat([PREFACE, ...RECORDED.slice(0, first), ...rest])),
  },
  { weight: 2, arbitrary: mutated([session]) },
  { weight: 1, arbitrary: anyBytes(FRAMES) },
)

const WORD = words()

/** Headers that no gRPC client would send. */
const HEADERS: fc.Arbitrary<OutgoingHttpHeaders> = fc.record(
  {
    ':path': fc.oneof(
      fc.constantFrom(
        ...CALLS.map(({ path }) => path),
        '/',
        '/grpc.Health/Check',
        '/grpc.health.v1.Health/Watch',
        '/grpc.reflection.v1.ServerReflection/ServerReflectionInfo',
      ),
      WORD.map((word) => `/${encodeURI(word.toWellFormed())}`),
    ),
    ':method': fc.constantFrom('POST', 'POST', 'POST', 'GET', 'OPTIONS'),
    'content-type': fc.constantFrom(
      'application/grpc',
      'application/grpc',
      'application/grpc+json',
      'application/grpc-web',
      'text/plain',
      '',
    ),
    'grpc-timeout': fc.oneof(
      fc.constantFrom('1n', '0m', '99999999H', '1S', '-1S', 'S', '999999999999S', '1.5S'),
      fc.nat(1000).map((ms) => `${ms}m`),
    ),
    'grpc-encoding': fc.constantFrom('identity', 'gzip', 'deflate', 'br', ''),
    'grpc-accept-encoding': fc.constantFrom('identity', 'gzip', 'deflate,gzip', ','),
    'x-bin': fc.constantFrom('%%%', 'AAAA', '', '='),
    te: fc.constant('trailers'),
  },
  { requiredKeys: [':path', ':method'] },
)

const MESSAGE = fc.oneof(
  mutated(CALLS.map(({ requestBytes }) => grpcMessage(requestBytes))),
  fc
    .tuple(
      fc.nat(3),
      fc.oneof(fc.nat(100), fc.constantFrom(0x400000, 0x400001, 0xffffffff)),
      fc.uint8Array({ maxLength: 60 }),
    )
    .map(([flags, length, bytes]) => {
      const head = Buffer.alloc(5, flags)
      head.writeUInt32BE(length, 1)
      return Buffer.concat([head, bytes])
    }),
)

const CALL = fc.record({
  headers: HEADERS,
  messages: fc.array(MESSAGE, { maxLength: 3 }),
  turns: fc.nat(10),
  resets: fc.boolean(),
})

/** The time limit for the broker to report a client's end. */
const LEFT_MS = 10_000

let running: RunningTransport
let totals: Totals
let check: () => Promise<void>

async function start(): Promise<void> {
  totals = new Totals()
  running = await runTransport(anyMethods(), { totals })
  const ttrpc = await running.dialTtrpc()
  const grpc = running.dialGrpc()
  check = async () => {
    await Promise.all([
      ttrpc.call('grpc.Health', 'Check', Buffer.of()),
      grpc.call('grpc.Health/Check', Buffer.of()),
    ])
  }
  await check()
}

/** The test remembers all connections, so it starts anew. */
async function startAnew(): Promise<void> {
  await running.close()
  await start()
}

beforeAll(start)

afterAll(() => running.close())

describe('connections', () => {
  fuzz('transport/bytes', {
    share: 12,
    batch: 200,
    afterBatch: startAnew,
    input: fc.record({ bytes: BYTES, cuts: CUTS, turns: fc.nat(20) }),
    show: ({ bytes, cuts, turns }) => `${turns} turns, cut at ${cuts.join(', ')}: ${bytes.toString('hex')}`,
    run: alone(async ({ bytes, cuts, turns }) => {
      const socket = await running.dial()
      const closed = closeOf(socket)
      socket.resume()
      for (const piece of inPieces(bytes, cuts)) {
        socket.write(piece)
        await turn()
      }
      for (let count = 0; count < turns; count++) await turn()
      socket.end()
      await endClosing(closed)
      await nothingLeft()
    }),
  })

  fuzz('transport/grpc-calls', {
    share: 8,
    batch: 200,
    afterBatch: startAnew,
    input: fc.array(CALL, { minLength: 1, maxLength: 4 }),
    show: (calls) =>
      JSON.stringify(
        calls.map((call) => ({
          ...call,
          messages: call.messages.map((bytes) => Buffer.from(bytes).toString('hex')),
        })),
      ),
    run: alone(async (calls) => {
      const socket = await running.dial()
      const closed = closeOf(socket)
      const client = connect('http://agent', { createConnection: () => socket })
      client.on('error', () => {})
      const statuses = await Promise.all(calls.map((call) => callOn(client, call)))
      client.destroy()
      await endClosing(closed)
      for (const status of statuses) if (!isDocumented(status)) throw new Error(`status ${status}`)
      await nothingLeft()
    }),
  })
})

/** Starts the socket anew after a failed case, which may affect the next case. */
function alone<Input>(run: (input: Input) => Promise<void>): (input: Input) => Promise<void> {
  return async (input) => {
    try {
      await run(input)
    } catch (error) {
      await startAnew()
      throw error
    }
  }
}

/** A closing client keeps its calls for a minute; this lets time pass until `closed`. */
async function endClosing(closed: Promise<unknown>): Promise<void> {
  let isClosed = false
  void closed.then(() => {
    isClosed = true
  })
  for (let turns = 0; !isClosed; turns++) {
    await turn()
    if (turns > 50) running.clock.advance(60_000)
  }
}

/** Other clients must be served, and only they may occupy the limits. */
async function nothingLeft(): Promise<void> {
  await check()
  const began = performance.now()
  for (let turns = 0; ; turns++) {
    const left = totals.uses().filter(({ name, used }) => used > (name === 'connections' ? 2 : 0))
    if (left.length === 0 && running.clock.sleeping === 0) return
    if (performance.now() > began + LEFT_MS)
      throw new Error(
        `left: ${left.map(({ name, used }) => `${name} ${used}`).join(', ')}, ${running.clock.sleeping} timers`,
      )
    await turn()
    if (turns > 50) running.clock.advance(60_000)
  }
}

/** Resolves with the call's `grpc-status`, else its HTTP status, or undefined if the stream was reset. */
async function callOn(
  client: ClientHttp2Session,
  { headers, messages, turns, resets }: typeof CALL extends fc.Arbitrary<infer T> ? T : never,
): Promise<string | undefined> {
  const stream = client.request(headers)
  let status: string | undefined
  stream.on('response', (response) => {
    status = `HTTP ${response[':status']}`
    if (response['grpc-status'] !== undefined) status = String(response['grpc-status'])
  })
  stream.on('trailers', (trailers) => {
    status = String(trailers['grpc-status'] ?? status)
  })
  stream.on('error', () => {})
  stream.resume()
  const closed = closeOf(stream)
  for (const message of messages) if (stream.writable) stream.write(message)
  for (let count = 0; count < turns; count++) await turn()
  if (resets) stream.close()
  else if (stream.writable) stream.end()
  // Some calls wait for their caller to leave.
  for (let count = 0; count < 30 && !stream.closed; count++) await turn()
  if (!stream.destroyed) stream.destroy()
  await closed
  return status
}

function closeOf(stream: Duplex): Promise<unknown> {
  return new Promise((resolve) => stream.once('close', resolve))
}

const CODES = new Set(Object.values(StatusCode).map(String))

function isDocumented(status: string | undefined): boolean {
  return status === undefined || CODES.has(status) || /^HTTP (200|4\d\d)$/.test(status)
}

/** All bytes of a client that makes a few calls without waiting for answers. */
async function recordSession(): Promise<Buffer> {
  const [near, far] = duplexPair()
  const sent: Buffer[] = []
  far.on('data', (chunk: Buffer) => sent.push(chunk))
  const client = connect('http://agent', { createConnection: () => near })
  client.on('error', () => {})
  for (const { path, requestBytes } of CALLS.slice(0, 6)) {
    const stream = client.request({
      ':method': 'POST',
      ':path': path,
      'content-type': 'application/grpc',
      te: 'trailers',
    })
    stream.on('error', () => {})
    stream.end(grpcMessage(requestBytes))
  }
  for (let turns = 0; turns < 20; turns++) await turn()
  client.destroy()
  return Buffer.concat(sent)
}

function framesIn(bytes: Buffer): readonly Buffer[] {
  const frames: Buffer[] = []
  for (let offset = 0; offset + FRAME_HEADER_BYTES <= bytes.length; ) {
    const end = offset + FRAME_HEADER_BYTES + bytes.readUIntBE(offset, 3)
    frames.push(bytes.subarray(offset, end))
    offset = end
  }
  return frames
}
