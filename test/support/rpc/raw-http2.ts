import { once } from 'node:events'
import { type ClientHttp2Session, type ClientHttp2Stream, connect } from 'node:http2'
import type { Socket } from 'node:net'

/** Resolves when the peer has answered. The session's errors are ignored. */
export async function http2On(
  socket: Socket,
  settings: { readonly initialWindowSize?: number } = {},
): Promise<ClientHttp2Session> {
  const session = connect('http://agent', { createConnection: () => socket, settings })
  session.on('error', () => {})
  await once(session, 'remoteSettings')
  return session
}

export function openCall(session: ClientHttp2Session, method: string): ClientHttp2Stream {
  const stream = session.request({
    ...{ ':method': 'POST', ':path': `/${method}`, 'content-type': 'application/grpc', te: 'trailers' },
  })
  stream.on('error', () => {})
  return stream
}

/** A message as gRPC sends it: uncompressed, after its length. */
export function grpcMessage(payload: Uint8Array): Buffer {
  const head = Buffer.alloc(5)
  head.writeUInt32BE(payload.length, 1)
  return Buffer.concat([head, payload])
}
