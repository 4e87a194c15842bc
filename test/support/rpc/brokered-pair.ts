import type { Socket } from 'node:net'
import type { BrokerLink } from '../../../src/rpc/ttrpc/broker-framing.ts'
import { EnvelopeKind, encodeEnvelope, KEEP } from '../../../src/rpc/ttrpc/envelope.ts'
import {
  allocateFrame,
  FRAME_HEADER_BYTES,
  type FrameHeader,
  FrameReader,
} from '../../../src/rpc/ttrpc/frame.ts'
import { cutter, envelopeSize, parseEnvelope } from '../broker/records.ts'
import { type SocketPair, socketPair } from './socket-pair.ts'

export const forgetfulLink: BrokerLink = {
  confirm: () => {},
  settled: () => {},
  refused: () => {},
  late: () => {},
  fail: (reason) => {
    throw new Error(reason)
  },
}

/**
 * A client's socket, and the data socket of a played broker, which reads no faster than the client. `broker` is its end of
 * the client's socket.
 */
export async function brokeredPair(): Promise<SocketPair & { readonly broker: Socket }> {
  const [outer, inner] = [await socketPair(), await socketPair()]
  join(outer.server, inner.client)
  return {
    server: inner.server,
    client: outer.client,
    broker: outer.server,
    close: () => {
      outer.close()
      inner.close()
    },
  }
}

function join(client: Socket, data: Socket): void {
  let number = 0n
  const send = (kind: number, of: bigint, frame: Buffer = Buffer.alloc(0)) => {
    if (!data.writable) return
    const envelope = encodeEnvelope({ kind, flags: 0, number: of, ageNs: 0, frameBytes: frame.length })
    pauseWhileFull(data, client, Buffer.concat([envelope, frame]))
  }
  const requests = new FrameReader({
    onFrame: (header, payload) => send(EnvelopeKind.request, ++number, frameOf(header, payload)),
    onOversizedFrame: (header) => send(EnvelopeKind.oversized, ++number, headerOf(header)),
  })
  const answered = cutter(envelopeSize, (record) => {
    const { kind, flags, number: of, frame } = parseEnvelope(record)
    if (kind !== EnvelopeKind.answer) return
    pauseWhileFull(client, data, frame, (error) => {
      if ((flags & KEEP) !== 0) send(error == null ? EnvelopeKind.written : EnvelopeKind.dropped, of)
    })
  })
  client.on('data', (chunk: Buffer) => requests.push(chunk))
  data.on('data', answered)
  for (const [one, other] of [
    [client, data],
    [data, client],
  ] as const) {
    one
      .on('error', () => {})
      .on('end', () => other.end())
      .on('close', () => other.end())
  }
}

function pauseWhileFull(
  target: Socket,
  source: Socket,
  bytes: Buffer,
  written?: (error?: Error | null) => void,
): void {
  if (target.write(bytes, written)) return
  source.pause()
  target.once('drain', () => source.resume())
}

function frameOf(header: FrameHeader, payload: Uint8Array): Buffer {
  const frame = allocateFrame(header)
  frame.set(payload, FRAME_HEADER_BYTES)
  return frame
}

function headerOf(header: FrameHeader): Buffer {
  return allocateFrame(header, header.payloadBytes)
}
