import type { Duplex } from 'node:stream'
import { deadlineExceeded, LONGEST_TIMER_MS } from '../../base/abort.ts'
import { AgentError, ConnectionLost, messageOf, StatusCode, statusCodeName } from '../../base/errors.ts'
import { startTimer } from '../timer.ts'
import { withTrace } from '../trace-scope.ts'
import {
  FRAME_HEADER_BYTES,
  type FrameHeader,
  FrameReader,
  FrameType,
  MAX_FRAME_PAYLOAD_BYTES,
} from './frame.ts'
import { decodeResponse, encodeRequestFrame, type RequestMetadata, timeoutNanoOf } from './messages.ts'

export interface CallOptions {
  /** Sent to the server and enforced here too. No limit by default. */
  readonly timeoutMs?: number | undefined
  /** Rejects this call with its reason. */
  readonly signal?: AbortSignal | undefined
  /** The agent reads `traceparent`, `idempotency-key` and `output-read`. */
  readonly metadata?: RequestMetadata | undefined
}

export interface TtrpcClient {
  /** Rejects with an `AgentError` of the server's code, or with `ConnectionLost`. */
  call(service: string, method: string, payload: Uint8Array, options?: CallOptions): Promise<Uint8Array>
  /** Rejects the calls in progress. */
  close(): void
  /** Resolves when either side has ended the connection. */
  readonly closed: Promise<void>
}

/** The client owns the connected socket from then on. */
export function ttrpcClient(socket: Duplex): TtrpcClient {
  return new ClientConnection(socket)
}

interface PendingCall {
  readonly resolve: (payload: Uint8Array) => void
  readonly reject: (error: unknown) => void
}

/** The largest odd u32; after it the ids begin again. */
const LAST_STREAM_ID = 0xffffffff

class ClientConnection implements TtrpcClient {
  readonly closed: Promise<void>
  readonly #socket: Duplex
  readonly #pending = new Map<number, PendingCall>()
  #nextStreamId = 1
  #loss: ConnectionLost | undefined

  constructor(socket: Duplex) {
    this.#socket = socket
    const reader = new FrameReader({
      onFrame: (header, payload) => this.#onFrame(header, payload),
      onOversizedFrame: ({ streamId, payloadBytes }) =>
        this.#settle(streamId)?.reject(tooLarge('response', payloadBytes)),
    })
    const closed = Promise.withResolvers<void>()
    this.closed = closed.promise
    socket.on('data', (chunk: Buffer) => reader.push(chunk))
    socket.on('error', (error) => this.#lose(error))
    socket.on('end', () => this.#lose())
    socket.on('close', () => {
      this.#lose()
      closed.resolve()
    })
  }

  async call(
    service: string,
    method: string,
    payload: Uint8Array,
    options: CallOptions = {},
  ): Promise<Uint8Array> {
    options.signal?.throwIfAborted()
    if (this.#loss !== undefined) throw this.#loss
    const streamId = this.#takeStreamId()
    const timeoutNano = timeoutNanoOf(options.timeoutMs)
    const metadata = withTrace(options.metadata)
    const frame = encodeRequestFrame(streamId, { service, method, payload, timeoutNano }, metadata)
    const frameBytes = frame.length - FRAME_HEADER_BYTES
    if (frameBytes > MAX_FRAME_PAYLOAD_BYTES) throw tooLarge('request', frameBytes)
    const { promise, resolve, reject } = Promise.withResolvers<Uint8Array>()
    this.#pending.set(streamId, { resolve, reject })
    const abandon = (reason: unknown) => this.#settle(streamId)?.reject(reason)
    const stopWatching = watchCall(options, abandon)
    this.#socket.write(frame)
    try {
      return await promise
    } finally {
      stopWatching()
    }
  }

  close(): void {
    this.#lose()
  }

  #onFrame(header: FrameHeader, bytes: Uint8Array): void {
    const call = header.type === FrameType.response ? this.#settle(header.streamId) : undefined
    // A late response, or a frame that unary calls do not use.
    if (call === undefined) return
    try {
      const response = decodeResponse(bytes)
      if (response.code === StatusCode.OK) call.resolve(response.payload)
      else call.reject(new AgentError(statusCodeName(response.code), response.message))
    } catch (error) {
      call.reject(
        new AgentError('INTERNAL', `undecodable ttRPC response: ${messageOf(error)}`, { cause: error }),
      )
    }
  }

  #takeStreamId(): number {
    while (this.#pending.has(this.#nextStreamId)) this.#advanceStreamId()
    const streamId = this.#nextStreamId
    this.#advanceStreamId()
    return streamId
  }

  #advanceStreamId(): void {
    this.#nextStreamId = this.#nextStreamId === LAST_STREAM_ID ? 1 : this.#nextStreamId + 2
  }

  #settle(streamId: number): PendingCall | undefined {
    const call = this.#pending.get(streamId)
    this.#pending.delete(streamId)
    return call
  }

  #lose(cause?: Error): void {
    if (this.#loss !== undefined) return
    this.#loss = new ConnectionLost('ttrpc: closed', cause)
    for (const streamId of [...this.#pending.keys()]) this.#settle(streamId)?.reject(this.#loss)
    this.#socket.destroy()
  }
}

/** Calls `abandon` when the time is over or the signal fires, unless the returned function is called before. */
export function watchCall(options: CallOptions, abandon: (reason: unknown) => void): () => void {
  const { signal, timeoutMs } = options
  const onAbort = () => abandon(signal?.reason)
  signal?.addEventListener('abort', onAbort, { once: true })
  const stopTimer =
    timeoutMs === undefined || timeoutMs > LONGEST_TIMER_MS
      ? undefined
      : startTimer(Math.max(timeoutMs, 0), () => abandon(deadlineExceeded()))
  return () => {
    signal?.removeEventListener('abort', onAbort)
    stopTimer?.()
  }
}

function tooLarge(what: 'request' | 'response', bytes: number): AgentError {
  return new AgentError(
    'RESOURCE_EXHAUSTED',
    `${what} of ${bytes} bytes is larger than ${MAX_FRAME_PAYLOAD_BYTES}`,
  )
}
