import type { Duplex } from 'node:stream'
import { setImmediate as turn } from 'node:timers/promises'
import fc from 'fast-check'
import { describe } from 'vitest'
import { StatusCode } from '../../src/base/errors.ts'
import { Totals } from '../../src/rpc/limits.ts'
import { detectProtocol } from '../../src/rpc/protocol-detection.ts'
import { type FrameHeader, FrameReader } from '../../src/rpc/ttrpc/frame.ts'
import { decodeResponse, encodeRequestFrame } from '../../src/rpc/ttrpc/messages.ts'
import { TtrpcServerConnection } from '../../src/rpc/ttrpc/server-connection.ts'
import { FakeClock } from '../support/fakes/fake-clock.ts'
import { anyMethods } from '../support/fuzz/any-methods.ts'
import { anyBytes, CUTS, inPieces, mutated } from '../support/fuzz/bytes.ts'
import { fuzz } from '../support/fuzz/fuzz.ts'
import { recordedCalls } from '../support/fuzz/requests.ts'
import { duplexPair } from '../support/rpc/duplex-pair.ts'
import { connectionTotals } from '../support/rpc/totals.ts'

/** The recorded calls as frames, and a few together. */
const FRAMES = recordedCalls().map(({ stream, service, method, requestBytes, timeoutNano, metadata }) =>
  encodeRequestFrame(stream, { service, method, payload: requestBytes, timeoutNano }, metadata),
)
const RUNS = FRAMES.map((frame, index) => Buffer.concat([frame, ...FRAMES.slice(index + 1, index + 4)]))

/** Headers of any frame. */
const HEADER = fc
  .tuple(
    fc.oneof(fc.nat(64), fc.constantFrom(0x400000, 0x400001, 0xffffff, 0xffffffff)),
    fc.oneof(fc.nat(8), fc.constantFrom(0x7fffffff, 0xffffffff)),
    fc.nat(5),
    fc.nat(7),
  )
  .map(([length, stream, type, flags]) => {
    const header = Buffer.alloc(10)
    header.writeUInt32BE(length, 0)
    header.writeUInt32BE(stream, 4)
    return Buffer.concat([header.fill(type, 8, 9).fill(flags, 9, 10), Buffer.alloc(Math.min(length, 64))])
  })

/** What a connection sends: frames, whole or not, and what else. */
const STREAM = fc
  .array(
    fc.oneof(
      { weight: 3, arbitrary: fc.constantFrom(...FRAMES) },
      { weight: 3, arbitrary: mutated(RUNS) },
      { weight: 2, arbitrary: HEADER },
      { weight: 1, arbitrary: anyBytes(FRAMES) },
    ),
    { maxLength: 6 },
  )
  .map((parts) => Buffer.concat(parts))

const INPUT = fc.record({ bytes: STREAM, cuts: CUTS })

function show({ bytes, cuts }: { readonly bytes: Buffer; readonly cuts: readonly number[] }): string {
  return `cut at ${cuts.join(', ')}: ${bytes.toString('hex')}`
}

describe('ttRPC', () => {
  fuzz('ttrpc/detection', {
    share: 40,
    input: anyBytes([
      ...FRAMES.slice(0, 50),
      Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0'),
    ]),
    show: (bytes) => bytes.toString('hex'),
    run: checkDetection,
  })

  fuzz('ttrpc/frames', { share: 120, input: INPUT, show, run: checkFrames })

  fuzz('ttrpc/connection', { share: 100, input: INPUT, show, run: serveBytes })
})

/** The framing is told by the first bytes for good, whatever comes after them. */
function checkDetection(bytes: Buffer): void {
  let decided: string | undefined
  for (let length = 0; length <= Math.min(bytes.length, 64); length++) {
    const detected = detectProtocol(bytes.subarray(0, length))
    if (decided !== undefined && detected !== decided)
      throw new Error(`${decided} after ${length - 1} bytes, ${detected} after ${length}`)
    if (detected !== 'need-more') decided = detected
  }
  if (decided === undefined && bytes.length >= 24) throw new Error(`undecided after ${bytes.length} bytes`)
}

/** The frames of a stream are the same however it is cut, and what the reader holds is what it says. */
function checkFrames({ bytes, cuts }: { readonly bytes: Buffer; readonly cuts: readonly number[] }): void {
  const whole = framesOf([bytes])
  const cut = framesOf(inPieces(bytes, cuts))
  if (whole.join('\n') !== cut.join('\n'))
    throw new Error(`${whole.join('; ')}\nin pieces: ${cut.join('; ')}`)
}

function framesOf(pieces: readonly Buffer[]): readonly string[] {
  const frames: string[] = []
  let held = 0
  const note = (what: string, { streamId, type, payloadBytes }: FrameHeader, payload?: Uint8Array) =>
    frames.push(
      `${what} ${type} ${streamId} ${payloadBytes} ${Buffer.from(payload ?? []).toString('base64')}`,
    )
  const reader = new FrameReader({
    onFrame: (header, payload) => note('frame', header, payload),
    onOversizedFrame: (header) => note('oversized', header),
    onHold: (bytes) => {
      held += bytes
      return true
    },
    onRelease: (bytes) => {
      held -= bytes
    },
  })
  const sent = pieces.reduce((sum, { length }) => sum + length, 0)
  for (const piece of pieces) {
    reader.push(piece)
    if (held < 0 || held > 16 * sent) throw new Error(`holds ${held} bytes of ${sent}`)
  }
  reader.release()
  if (held !== 0) throw new Error(`holds ${held} bytes at the end`)
  return frames
}

const METHODS = anyMethods()

const CODES = new Set<number>(Object.values(StatusCode))

/** A connection answers with whole frames of known codes, and gives back all that it took when it ends. */
async function serveBytes({
  bytes,
  cuts,
}: {
  readonly bytes: Buffer
  readonly cuts: readonly number[]
}): Promise<void> {
  const [client, server] = duplexPair()
  const clock = new FakeClock()
  const totals = new Totals()
  const own = connectionTotals(totals, () => server.destroy())
  server.once('close', () => own.end())
  const closed = new Promise((resolve) => server.once('close', resolve))
  const answers = readAnswers(client)
  new TtrpcServerConnection(server, {
    methods: METHODS,
    peer: 'test',
    startTimer: (ms, expired) => clock.startTimer(ms, expired),
    totals: own,
  }).start(Buffer.of())
  for (const piece of inPieces(bytes, cuts)) client.write(piece)
  for (let turns = 0; turns < 4; turns++) await turn()
  client.end()
  client.resume()
  await turn()
  server.destroy()
  await closed
  await turn()
  answers.check()
  const left = totals.uses().filter(({ used }) => used !== 0)
  if (left.length > 0) throw new Error(`left: ${left.map(({ name, used }) => `${name} ${used}`).join(', ')}`)
  if (clock.sleeping > 0) throw new Error(`${clock.sleeping} timers left`)
}

function readAnswers(client: Duplex) {
  let failure: Error | undefined
  const reader = new FrameReader({
    onFrame: ({ type }, payload) => {
      const { code } = decodeResponse(payload)
      if (type !== 2 || !CODES.has(code)) failure = new Error(`an answer of type ${type} with code ${code}`)
    },
    onOversizedFrame: ({ payloadBytes }) => {
      failure = new Error(`an answer of ${payloadBytes} bytes`)
    },
  })
  client.on('data', (chunk: Buffer) => reader.push(chunk))
  return {
    check: () => {
      if (failure !== undefined) throw failure
      if (reader.incompleteHeader !== undefined) throw new Error('the last answer is incomplete')
    },
  }
}
