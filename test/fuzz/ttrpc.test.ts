import type { Duplex } from 'node:stream'
import { setImmediate as turn } from 'node:timers/promises'
import fc from 'fast-check'
import { describe } from 'vitest'
import { StatusCode } from '../../src/base/errors.ts'
import { Totals } from '../../src/rpc/limits.ts'
import { decodeEnvelope, ENVELOPE_BYTES, EnvelopeKind, encodeEnvelope } from '../../src/rpc/ttrpc/envelope.ts'
import {
  allocateFrame,
  FRAME_HEADER_BYTES,
  type FrameHeader,
  FrameReader,
  parseFrameHeader,
} from '../../src/rpc/ttrpc/frame.ts'
import { decodeResponse, encodeRequestFrame } from '../../src/rpc/ttrpc/messages.ts'
import { TtrpcServerConnection } from '../../src/rpc/ttrpc/server-connection.ts'
import { FakeClock } from '../support/fakes/fake-clock.ts'
import { anyMethods } from '../support/fuzz/any-methods.ts'
import { anyBytes, CUTS, inPieces, mutated } from '../support/fuzz/bytes.ts'
import { fuzz } from '../support/fuzz/fuzz.ts'
import { recordedCalls } from '../support/fuzz/requests.ts'
import { forgetfulLink } from '../support/rpc/brokered-pair.ts'
import { duplexPair } from '../support/rpc/duplex-pair.ts'
import { connectionTotals } from '../support/rpc/totals.ts'

const FRAMES = recordedCalls().map(({ stream, service, method, requestBytes, timeoutNano, metadata }) =>
  encodeRequestFrame(stream, { service, method, payload: requestBytes, timeoutNano }, metadata),
)
const RUNS = FRAMES.map((frame, index) => Buffer.concat([frame, ...FRAMES.slice(index + 1, index + 4)]))

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
  fuzz('ttrpc/frames', { share: 120, input: INPUT, show, run: checkFrames })

  fuzz('ttrpc/connection', { share: 100, input: INPUT, show, run: serveBytes })
})

/** The frames of a stream must not depend on its pieces. */
function checkFrames({ bytes, cuts }: { readonly bytes: Buffer; readonly cuts: readonly number[] }): void {
  const whole = framesOf([bytes])
  const cut = framesOf(inPieces(bytes, cuts))
  if (whole.join('\n') !== cut.join('\n'))
    throw new Error(`${whole.join('; ')}\nin pieces: ${cut.join('; ')}`)
}

function framesOf(pieces: readonly Buffer[]): readonly string[] {
  const frames: string[] = []
  const note = (what: string, { streamId, type, payloadBytes }: FrameHeader, payload?: Uint8Array) =>
    frames.push(
      `${what} ${type} ${streamId} ${payloadBytes} ${Buffer.from(payload ?? []).toString('base64')}`,
    )
  const reader = new FrameReader({
    onFrame: (header, payload) => note('frame', header, payload),
    onOversizedFrame: (header) => note('oversized', header),
  })
  for (const piece of pieces) reader.push(piece)
  return frames
}

const METHODS = anyMethods()

const CODES = new Set<number>(Object.values(StatusCode))

/** A data socket must answer with whole frames of known codes, and release all limits at its end. */
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
    link: forgetfulLink,
  }).start()
  for (const piece of inPieces(inEnvelopes(bytes), cuts)) client.write(piece)
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

/** A client's frames as the broker sends them, with the outcome of an earlier agent's answer between them. */
function inEnvelopes(bytes: Buffer): Buffer {
  const sent: Buffer[] = []
  const add = (kind: number, frame: Buffer) => {
    const number = BigInt(sent.length + 1)
    sent.push(encodeEnvelope({ kind, flags: 0, number, ageNs: 0, frameBytes: frame.length }), frame)
  }
  const reader = new FrameReader({
    onFrame: (header, payload) => {
      add(EnvelopeKind.request, Buffer.concat([allocateFrame(header, header.payloadBytes), payload]))
      add(EnvelopeKind.written, Buffer.alloc(0))
    },
    onOversizedFrame: (header) => add(EnvelopeKind.oversized, allocateFrame(header, header.payloadBytes)),
  })
  reader.push(bytes)
  return Buffer.concat(sent)
}

function readAnswers(client: Duplex) {
  const chunks: Buffer[] = []
  client.on('data', (chunk: Buffer) => chunks.push(chunk))
  return {
    check: () => {
      const bytes = Buffer.concat(chunks)
      let offset = 0
      while (offset < bytes.length) {
        const { kind, frameBytes } = decodeEnvelope(bytes, offset)
        const frame = bytes.subarray(offset + ENVELOPE_BYTES, offset + ENVELOPE_BYTES + frameBytes)
        offset += ENVELOPE_BYTES + frameBytes
        if (kind === EnvelopeKind.answer) checkAnswer(frame)
        else if (frameBytes > 0) throw new Error(`a frame with an envelope of kind ${kind}`)
      }
      if (offset !== bytes.length) throw new Error('the last answer is incomplete')
    },
  }
}

function checkAnswer(frame: Buffer): void {
  const { type, payloadBytes } = parseFrameHeader(frame, 0)
  const { code } = decodeResponse(frame.subarray(FRAME_HEADER_BYTES))
  if (type !== 2 || !CODES.has(code)) throw new Error(`an answer of type ${type} with code ${code}`)
  if (payloadBytes !== frame.length - FRAME_HEADER_BYTES)
    throw new Error(`an answer of ${payloadBytes} bytes`)
}
