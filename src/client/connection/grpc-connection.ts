import {
  type ClientHttp2Session,
  type ClientHttp2Stream,
  connect,
  constants,
  type IncomingHttpHeaders,
} from 'node:http2'
import type { Duplex } from 'node:stream'
import { AgentError, messageOf, statusCodeName } from '../../base/errors.ts'
import { type CallOptions, type TtrpcClient, watchCall } from '../../rpc/ttrpc/client.ts'
import { MAX_FRAME_PAYLOAD_BYTES } from '../../rpc/ttrpc/frame.ts'

/** Bytes before each message (PROTOCOL-HTTP2 of gRPC): one of flags, four of length. */
const PREFIX_BYTES = 5

/**
 * Unary gRPC over a connected socket, which it then owns: the gRPC library cannot use a vsock. Throws as
 * {@link TtrpcClient}.
 */
export function grpcConnection(socket: Duplex): TtrpcClient {
  const session = connect('http://agent', { createConnection: () => socket })
  const closed = Promise.withResolvers<void>()
  // The calls report the error; without a listener it would end the process.
  session.on('error', () => {}).once('close', closed.resolve)
  return {
    call: (service, method, payload, options = {}) =>
      call(session, `/${service}/${method}`, payload, options),
    close: () => {
      session.destroy()
      socket.destroy()
    },
    closed: closed.promise,
  }
}

async function call(
  session: ClientHttp2Session,
  path: string,
  payload: Uint8Array,
  { metadata = {}, signal, timeoutMs }: CallOptions,
): Promise<Uint8Array> {
  signal?.throwIfAborted()
  if (session.closed || session.destroyed) throw lost()
  if (payload.length > MAX_FRAME_PAYLOAD_BYTES) {
    const text = `request of ${payload.length} bytes is larger than ${MAX_FRAME_PAYLOAD_BYTES}`
    throw new AgentError('RESOURCE_EXHAUSTED', text)
  }
  const stream = session.request({
    ...metadata,
    ':method': 'POST',
    ':path': path,
    'content-type': 'application/grpc',
    te: 'trailers',
    ...(timeoutMs === undefined ? {} : { 'grpc-timeout': timeoutText(timeoutMs) }),
  })
  const prefix = Buffer.alloc(PREFIX_BYTES)
  prefix.writeUInt32BE(payload.length, 1)
  stream.write(prefix)
  stream.end(payload)
  const given = Promise.withResolvers<never>()
  const stopWatching = watchCall({ signal, timeoutMs }, given.reject)
  const answer = answerOf(stream)
  answer.catch(() => {})
  try {
    return await Promise.race([answer, given.promise])
  } finally {
    stopWatching()
    if (!stream.closed) stream.close(constants.NGHTTP2_CANCEL)
  }
}

/** `grpc-timeout` has at most eight digits, so a longer timeout is sent in seconds. */
function timeoutText(timeoutMs: number): string {
  const ms = Math.max(0, Math.ceil(timeoutMs))
  return ms < 1e8 ? `${ms}m` : `${Math.ceil(ms / 1000)}S`
}

async function answerOf(stream: ClientHttp2Stream): Promise<Uint8Array> {
  const ended = Promise.withResolvers<void>()
  const chunks: Buffer[] = []
  let headers: IncomingHttpHeaders = {}
  let trailers: IncomingHttpHeaders = {}
  stream.on('response', (received) => {
    headers = received
  })
  stream.on('trailers', (received) => {
    trailers = received
  })
  stream.on('data', (chunk: Buffer) => chunks.push(chunk))
  stream.once('error', (error) => ended.reject(lost(error)))
  stream.once('close', ended.resolve)
  await ended.promise
  const status = headerText(trailers['grpc-status'] ?? headers['grpc-status'])
  if (status === undefined) {
    // A closed connection ends its streams without an error, even after the response headers.
    if (headers[':status'] === undefined || stream.rstCode !== constants.NGHTTP2_NO_ERROR) throw lost()
    throw new AgentError('INTERNAL', `not a gRPC server: HTTP status ${headers[':status']}`)
  }
  if (status !== '0') {
    const text = headerText(trailers['grpc-message'] ?? headers['grpc-message']) ?? ''
    throw new AgentError(statusCodeName(Number(status)), decoded(text))
  }
  return messageIn(Buffer.concat(chunks))
}

function headerText(value: string | readonly string[] | undefined): string | undefined {
  return typeof value === 'string' ? value : value?.[0]
}

/** `grpc-message` is percent-encoded. */
function decoded(text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    return text
  }
}

function messageIn(body: Buffer): Uint8Array {
  if (body.length < PREFIX_BYTES || body.readUInt32BE(1) !== body.length - PREFIX_BYTES)
    throw new AgentError('INTERNAL', `undecodable gRPC response of ${body.length} bytes`)
  if (body[0] !== 0) throw new AgentError('INTERNAL', 'compressed gRPC response, want none')
  return body.subarray(PREFIX_BYTES)
}

function lost(cause?: unknown): AgentError {
  return new AgentError('UNAVAILABLE', `grpc: closed${cause === undefined ? '' : `: ${messageOf(cause)}`}`, {
    cause,
  })
}
