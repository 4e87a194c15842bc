import type { Duplex } from 'node:stream'
import { BinaryReader, WireType } from '@bufbuild/protobuf/wire'
import { FrameReader, FrameType } from '../../rpc/ttrpc/frame.ts'
import { decodeRequest, decodeResponse, type RequestMetadata, timeoutMsOf } from '../../rpc/ttrpc/messages.ts'
import type { GivenAnswer, LineWriter } from './line-writer.ts'

/**
 * Joins a caller with the agent and records their ttRPC calls. All bytes pass unchanged. Resolves when both sides have
 * closed; false if the caller did not speak ttRPC.
 */
export async function recordBetween(
  caller: Duplex,
  agent: Duplex,
  { connection, writer }: { readonly connection: number; readonly writer: LineWriter },
): Promise<boolean> {
  let isTtrpc = true
  // A ttRPC frame begins with its length, which is below 16 MiB.
  caller.once('data', (chunk: Buffer) => {
    isTtrpc = chunk[0] === 0
  })
  const open = new Map<number, (answer: GivenAnswer | undefined) => void>()
  const requests = new FrameReader({
    onFrame: ({ streamId, type }, bytes) => {
      if (type !== FrameType.request) return
      const { method, payload, service, timeoutNano } = decodeRequest(bytes)
      const timeoutMs = timeoutMsOf(timeoutNano) ?? 0
      // Copied, because the payload may be a view of bytes in transit.
      const call = { service, method, timeoutMs, payload: Buffer.from(payload) }
      open.set(
        streamId,
        writer.call({ ...call, connection, stream: streamId, metadata: decodeMetadata(bytes) }),
      )
    },
    onOversizedFrame: () => {},
  })
  const answers = new FrameReader({
    onFrame: ({ streamId, type }, bytes) => {
      if (type !== FrameType.response) return
      const { code, message, payload } = decodeResponse(bytes)
      open.get(streamId)?.({ code, message, payload: code === 0 ? payload : undefined })
      open.delete(streamId)
    },
    onOversizedFrame: () => {},
  })
  writer.connection(connection, 'open')
  await Promise.all([pass(caller, agent, requests), pass(agent, caller, answers)])
  for (const unanswered of open.values()) unanswered(undefined)
  writer.connection(connection, 'close')
  return isTtrpc
}

async function pass(source: Duplex, target: Duplex, reader: FrameReader): Promise<void> {
  const closed = Promise.withResolvers<void>()
  source.on('data', (chunk: Buffer) => {
    try {
      reader.push(chunk)
    } catch {
      // Other bytes than ttRPC pass as well.
    }
  })
  source.on('error', () => {}).once('close', closed.resolve)
  source.pipe(target)
  await closed.promise
  target.end()
}

/** The metadata is field 5. The agent's decoder reads only the trace context. */
function decodeMetadata(request: Uint8Array): RequestMetadata {
  const reader = new BinaryReader(request)
  const pairs: [string, string][] = []
  while (reader.pos < reader.len) {
    const [field, type] = reader.tag()
    if (field === 5 && type === WireType.LengthDelimited) pairs.push(pairOf(reader.bytes()))
    else reader.skip(type, field)
  }
  return Object.fromEntries(pairs)
}

function pairOf(bytes: Uint8Array): [string, string] {
  const reader = new BinaryReader(bytes)
  const pair: [string, string] = ['', '']
  while (reader.pos < reader.len) {
    const [field, type] = reader.tag()
    if ((field === 1 || field === 2) && type === WireType.LengthDelimited) pair[field - 1] = reader.string()
    else reader.skip(type, field)
  }
  return pair
}
