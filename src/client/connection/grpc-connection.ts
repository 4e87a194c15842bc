import { once } from 'node:events'
import {
  type ClientHttp2Session,
  type ClientHttp2Stream,
  connect,
  constants,
  type IncomingHttpHeaders,
} from 'node:http2'
import type { Duplex } from 'node:stream'
import { LateAbort } from '../../base/abort.ts'
import { AgentError, ConnectionLost, messageOf, type Reason, statusCodeName } from '../../base/errors.ts'
import { REASON } from '../../rpc/method.ts'
import { withTrace } from '../../rpc/trace-scope.ts'
import { type CallOptions, type TtrpcClient, watchCall } from '../../rpc/ttrpc/client.ts'
import { MAX_FRAME_PAYLOAD_BYTES } from '../../rpc/ttrpc/frame.ts'
import type { RequestMetadata } from '../../rpc/ttrpc/messages.ts'

/** Of one message of a stream. A daemon tells of many instances at once (docs/instances.md). */
const MAX_ANSWER_BYTES = 32 << 20

/** Bytes before each message (PROTOCOL-HTTP2 of gRPC): one of flags, four of length. */
const PREFIX_BYTES = 5

/** A call whose requests, answers or both are streams. Its caller reads `answers` to their end, or cancels. */
export interface StreamCall {
  /** Resolves when more can be sent. Rejects when the call has ended. */
  send(message: Uint8Array): Promise<void>
  /** Ends the requests. */
  end(): void
  /** Ends with the call; throws an `AgentError` of the server's code, or `ConnectionLost`. */
  readonly answers: AsyncGenerator<Uint8Array, void, undefined>
  cancel(): void
}

export interface GrpcConnection extends TtrpcClient {
  stream(service: string, method: string, metadata?: RequestMetadata): StreamCall
  /** Resolves with true when the server has spoken, which it does at once, and with false when it hung up before. */
  readonly greeted: Promise<boolean>
  /** Resolves when the server has answered a PING; rejects once the connection is closed. */
  ping(): Promise<void>
}

/**
 * gRPC over a connected socket, which it then owns: the gRPC library cannot use a vsock, and takes long to load. Throws as
 * {@link TtrpcClient}.
 */
export function grpcConnection(socket: Duplex): GrpcConnection {
  const session = connect('http://agent', { createConnection: () => socket })
  const closed = Promise.withResolvers<void>()
  // The calls report the error; without a listener it would end the process.
  session.on('error', () => {}).once('close', closed.resolve)
  const greeted = Promise.withResolvers<boolean>()
  session.once('remoteSettings', () => greeted.resolve(true)).once('close', () => greeted.resolve(false))
  return {
    call: (service, method, payload, options = {}) =>
      call(session, `/${service}/${method}`, payload, options),
    stream: (service, method, metadata = {}) => streamCall(session, `/${service}/${method}`, metadata),
    close: () => {
      session.destroy()
      socket.destroy()
    },
    closed: closed.promise,
    greeted: greeted.promise,
    ping: () =>
      new Promise((resolve, reject) => {
        if (session.closed || session.destroyed) return reject(lost())
        session.ping((error) => (error === null ? resolve() : reject(error)))
      }),
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
  const timeout = timeoutMs === undefined ? {} : { 'grpc-timeout': timeoutText(timeoutMs) }
  const stream = openStream(session, path, { ...metadata, ...timeout })
  stream.write(prefixOf(payload))
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

function openStream(session: ClientHttp2Session, path: string, metadata: RequestMetadata): ClientHttp2Stream {
  return session.request({
    ...withTrace(metadata),
    ':method': 'POST',
    ':path': path,
    'content-type': 'application/grpc',
    te: 'trailers',
  })
}

function prefixOf(payload: Uint8Array): Buffer {
  const prefix = Buffer.alloc(PREFIX_BYTES)
  prefix.writeUInt32BE(payload.length, 1)
  return prefix
}

function streamCall(session: ClientHttp2Session, path: string, metadata: RequestMetadata): StreamCall {
  if (session.closed || session.destroyed) throw lost()
  const stream = openStream(session, path, metadata)
  const status = statusOf(stream)
  const closed = new LateAbort()
  // The reader of the answers reports a failure.
  status.catch(() => {}).finally(() => closed.abort())
  return {
    send: async (message) => {
      if (!stream.writable) throw lost()
      stream.write(prefixOf(message))
      if (!stream.write(message)) await once(stream, 'drain', { signal: closed.signal }).catch(endedEarly)
    },
    end: () => stream.end(),
    answers: answersOf(stream, status),
    cancel: () => stream.close(constants.NGHTTP2_CANCEL),
  }
}

function endedEarly(): never {
  throw lost()
}

async function* answersOf(
  stream: ClientHttp2Stream,
  status: Promise<void>,
): AsyncGenerator<Uint8Array, void, undefined> {
  // A long message comes in many chunks.
  let [parts, bytes, next] = [[] as Buffer[], 0, PREFIX_BYTES]
  try {
    for await (const chunk of stream) {
      parts.push(chunk)
      bytes += chunk.length
      if (bytes < next) continue
      let rest = parts.length === 1 ? chunk : Buffer.concat(parts, bytes)
      for (next = messageEnd(rest); next <= rest.length; next = messageEnd(rest)) {
        yield messageIn(rest.subarray(0, next))
        rest = rest.subarray(next)
      }
      ;[parts, bytes] = [[rest], rest.length]
    }
  } catch (error) {
    if (error instanceof AgentError) throw error
    // The status tells why the stream has failed.
  } finally {
    stream.close(constants.NGHTTP2_CANCEL)
  }
  await status
}

/** Where the first message of the bytes ends, or its prefix when that is not whole yet. */
function messageEnd(bytes: Buffer): number {
  if (bytes.length < PREFIX_BYTES) return PREFIX_BYTES
  const length = bytes.readUInt32BE(1)
  if (length <= MAX_ANSWER_BYTES) return PREFIX_BYTES + length
  throw new AgentError('RESOURCE_EXHAUSTED', `answer of ${length} bytes is larger than ${MAX_ANSWER_BYTES}`)
}

/** `grpc-timeout` has at most eight digits, so a longer timeout is sent in seconds. */
function timeoutText(timeoutMs: number): string {
  const ms = Math.max(0, Math.ceil(timeoutMs))
  return ms < 1e8 ? `${ms}m` : `${Math.ceil(ms / 1000)}S`
}

async function answerOf(stream: ClientHttp2Stream): Promise<Uint8Array> {
  const chunks: Buffer[] = []
  stream.on('data', (chunk: Buffer) => chunks.push(chunk))
  await statusOf(stream)
  return messageIn(Buffer.concat(chunks))
}

/** Waits for the end of a call, whose answers another function reads. Throws its status unless that is OK. */
async function statusOf(stream: ClientHttp2Stream): Promise<void> {
  const ended = Promise.withResolvers<void>()
  let headers: IncomingHttpHeaders = {}
  let trailers: IncomingHttpHeaders = {}
  stream.on('response', (received) => {
    headers = received
  })
  stream.on('trailers', (received) => {
    trailers = received
  })
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
    const reason = reasonIn(headerText(trailers[REASON] ?? headers[REASON]))
    throw new AgentError(statusCodeName(Number(status)), decoded(text), { reason })
  }
}

function headerText(value: string | readonly string[] | undefined): string | undefined {
  return typeof value === 'string' ? value : value?.[0]
}

/** Undefined for those of other servers. */
function reasonIn(text: string | undefined): Reason | undefined {
  return text === 'moving' || text === 'moved' ? text : undefined
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

function lost(cause?: unknown): ConnectionLost {
  return new ConnectionLost(`grpc: closed${cause === undefined ? '' : `: ${messageOf(cause)}`}`, cause)
}
