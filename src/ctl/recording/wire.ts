import type { Duplex } from 'node:stream'
import { WriteStreamRequest } from '../../gen/agent.ts'
import { FrameReader } from '../../rpc/ttrpc/frame.ts'
import { decodeResponse, encodeRequestFrame, type TtrpcResponse } from '../../rpc/ttrpc/messages.ts'
import { codecsOf, type MessageCodecs, plainMessage } from './codecs.ts'
import { bytesOf, type JsonObject, numberOf, type RecordedCall, textOf } from './recording.ts'

export interface Answer {
  readonly code: number
  readonly message: string
  readonly response: JsonObject | undefined
}

export interface RecordedWire {
  /** Sends the recorded bytes. Rejects when the connection ends before the answer. */
  send(call: RecordedCall): Promise<Answer>
  close(): void
}

/** Owns the socket from then on. */
export function recordedWire(socket: Duplex): RecordedWire {
  const waiting = new Map<number, PromiseWithResolvers<TtrpcResponse>>()
  let lastStream = -1
  const reader = new FrameReader({
    onFrame: ({ streamId }, payload) => waiting.get(streamId)?.resolve(decodeResponse(payload)),
    onOversizedFrame: ({ streamId }) =>
      waiting.get(streamId)?.reject(new Error('the answer is larger than a frame may be')),
  })
  socket.on('data', (chunk: Buffer) => reader.push(chunk))
  socket.on('error', () => {})
  socket.on('close', () => {
    for (const { reject } of waiting.values()) reject(new Error('the connection ended before the answer'))
  })
  return {
    async send(call) {
      // The recorded id, or a higher one if the reads took more ids than in the recording.
      const stream = Math.max(call.stream, lastStream + 2)
      lastStream = stream
      const answered = Promise.withResolvers<TtrpcResponse>()
      waiting.set(stream, answered)
      const { service, method, timeoutNano, metadata } = call
      socket.write(
        encodeRequestFrame(stream, { service, method, timeoutNano, payload: payloadOf(call) }, metadata),
      )
      const { code, message, payload } = await answered.promise.finally(() => waiting.delete(stream))
      return {
        code,
        message,
        response: code === 0 ? plainMessage(methodOf(call).responseType.decode(payload)) : undefined,
      }
    },
    close: () => void socket.destroy(),
  }
}

/** Most writes to stdin have no recorded bytes; zeros replace data of which only the size is known. */
export function payloadOf({ method, request, requestBytes }: RecordedCall): Uint8Array {
  if (requestBytes !== undefined) return requestBytes
  if (method !== 'WriteStdin') throw new Error('request_bytes: missing')
  const containerId = textOf('containerId', request.containerId)
  const execId = textOf('execId', request.execId)
  const data = bytesOf(request.data) ?? Buffer.alloc(sizeOf(request))
  return WriteStreamRequest.encode({ containerId, execId, data }).finish()
}

function sizeOf({ data }: JsonObject): number {
  return typeof data === 'object' && data !== null && 'bytes' in data ? numberOf('data.bytes', data.bytes) : 0
}

export function decodedRequest(call: RecordedCall): JsonObject {
  return plainMessage(methodOf(call).requestType.decode(payloadOf(call)))
}

function methodOf({ service, method }: RecordedCall): MessageCodecs {
  const found = codecsOf(service, method)
  if (found === undefined) throw new Error(`${service}/${method}: not a method of the agent`)
  return found
}
