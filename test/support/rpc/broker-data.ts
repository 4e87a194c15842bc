import type { Socket } from 'node:net'
import {
  decodeEnvelope,
  ENVELOPE_BYTES,
  type Envelope,
  EnvelopeKind,
  encodeEnvelope,
} from '../../../src/rpc/ttrpc/envelope.ts'
import { FRAME_HEADER_BYTES, parseFrameHeader } from '../../../src/rpc/ttrpc/frame.ts'
import { decodeResponse, encodeRequestFrame } from '../../../src/rpc/ttrpc/messages.ts'
import type { RawResponse } from './raw-peer.ts'

export type FromAgent = Envelope & { readonly frame: Buffer }

/** The broker's end of a data socket, played by the test. */
export interface BrokerData {
  send(kind: number, number: bigint, frame?: Buffer, more?: Partial<Pick<Envelope, 'ageNs' | 'flags'>>): void
  /** The agent's next message; rejects after its end. */
  next(): Promise<FromAgent>
}

export function brokerData(socket: Socket): BrokerData {
  const arrived: FromAgent[] = []
  const takers: PromiseWithResolvers<FromAgent>[] = []
  let unread = Buffer.alloc(0)
  socket.on('data', (chunk: Buffer) => {
    unread = Buffer.concat([unread, chunk])
    while (unread.length >= ENVELOPE_BYTES) {
      const envelope = decodeEnvelope(unread, 0)
      const end = ENVELOPE_BYTES + envelope.frameBytes
      if (unread.length < end) return
      const message = { ...envelope, frame: unread.subarray(ENVELOPE_BYTES, end) }
      unread = unread.subarray(end)
      const taker = takers.shift()
      if (taker === undefined) arrived.push(message)
      else taker.resolve(message)
    }
  })
  socket.on('error', () => {})
  socket.on('close', () => {
    for (const taker of takers) taker.reject(new Error('the agent has closed'))
  })
  return {
    send: (kind, number, frame = Buffer.alloc(0), { ageNs = 0, flags = 0 } = {}) => {
      const envelope = encodeEnvelope({ kind, flags, number, ageNs, frameBytes: frame.length })
      socket.write(Buffer.concat([envelope, frame]))
    },
    next: async () => {
      const known = arrived.shift()
      if (known !== undefined) return known
      const taker = Promise.withResolvers<FromAgent>()
      takers.push(taker)
      return taker.promise
    },
  }
}

export function requestFrame(
  streamId: number,
  method: string,
  { payload = Buffer.alloc(0), timeoutNano = 0n } = {},
): Buffer {
  return encodeRequestFrame(streamId, { service: 'test.Echo', method, payload, timeoutNano })
}

export function responseIn({ kind, frame }: FromAgent): RawResponse {
  if (kind !== EnvelopeKind.answer) throw new Error(`message of kind ${kind} is no answer`)
  const { streamId } = parseFrameHeader(frame, 0)
  return { streamId, ...decodeResponse(frame.subarray(FRAME_HEADER_BYTES)) }
}
