import type { Socket } from 'node:net'
import { FrameReader } from '../../../src/rpc/ttrpc/frame.ts'
import { decodeResponse, encodeRequestFrame, type TtrpcResponse } from '../../../src/rpc/ttrpc/messages.ts'

export interface RawResponse extends TtrpcResponse {
  readonly streamId: number
}

/** A peer that sends any bytes, valid or not, and records the answers. */
export interface RawPeer {
  readonly socket: Socket
  send(...bytes: readonly Buffer[]): void
  request(streamId: number, service: string, method: string, options?: RawRequest): void
  response(): Promise<RawResponse>
  readonly closed: Promise<void>
}

interface RawRequest {
  readonly payload?: Uint8Array
  readonly timeoutNano?: bigint
}

export function rawPeer(socket: Socket): RawPeer {
  const arrived: RawResponse[] = []
  const takers: { resolve: (response: RawResponse) => void; reject: (error: Error) => void }[] = []
  const closed = Promise.withResolvers<void>()
  const reader = new FrameReader({
    onFrame: ({ streamId }, payload) => {
      const response = { streamId, ...decodeResponse(payload) }
      const taker = takers.shift()
      if (taker === undefined) arrived.push(response)
      else taker.resolve(response)
    },
    onOversizedFrame: () => {
      throw new Error('the server sent a frame larger than the protocol allows')
    },
  })
  socket.on('data', (chunk: Buffer) => reader.push(chunk))
  socket.on('error', () => {})
  socket.on('close', () => {
    for (const taker of takers) taker.reject(new Error('the connection has ended'))
    closed.resolve()
  })
  return {
    socket,
    send: (...bytes) => void socket.write(Buffer.concat(bytes)),
    request: (streamId, service, method, { payload = Buffer.alloc(0), timeoutNano = 0n } = {}) =>
      void socket.write(encodeRequestFrame(streamId, { service, method, payload, timeoutNano })),
    response: async () =>
      arrived.shift() ?? new Promise((resolve, reject) => takers.push({ resolve, reject })),
    closed: closed.promise,
  }
}
