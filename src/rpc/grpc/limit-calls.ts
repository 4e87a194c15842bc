import type { ServerHttp2Stream } from 'node:http2'
import { Duplex } from 'node:stream'
import {
  type Metadata,
  ServerInterceptingCall,
  type ServerInterceptingCallInterface,
  type ServerInterceptor,
} from '@grpc/grpc-js'
import { StatusCode } from '../../base/errors.ts'
import { type ConnectionTotals, LIMITS } from '../limits.ts'
import type { MethodTable } from '../method.ts'

/** Answers up to this size may use the whole reserve, because the error in their place could be as long. */
const SHORT_BYTES = 1024

/**
 * Counts one connection's calls, the bytes of their requests as they arrive, and those of answers until they are sent.
 * Answers RESOURCE_EXHAUSTED beyond a limit. `streams` has the methods whose calls may stay open for ever, with the most bytes of one
 * message of a request that is a stream.
 */
export function limitCalls(
  totals: ConnectionTotals,
  methods: MethodTable,
  streams: ReadonlyMap<string, number>,
): ServerInterceptor {
  return ({ path, requestStream }, call) => {
    const method = path.slice(1)
    const messageBytes = streams.get(method)
    const isStream = messageBytes !== undefined
    const stream = streamOf(call)
    const refusal = isStream
      ? totals.openStream()
      : totals.openCall(methods.get(method)?.share ?? 'ordinary', 0)
    const limited = new LimitedCall(call, {
      stream,
      totals,
      isStream,
      messageBytes: requestStream ? (messageBytes ?? LIMITS.streamMessageBytes) : undefined,
      refusal,
    })
    if (refusal !== undefined) totals.inTurn(() => limited.refuse(refusal))
    return limited
  }
}

interface OpenedCall {
  readonly stream: ServerHttp2Stream
  readonly totals: ConnectionTotals
  readonly isStream: boolean
  /** The most bytes of a message, when the request is a stream. */
  readonly messageBytes: number | undefined
  /** The reason of a call that is refused at its start. */
  readonly refusal: string | undefined
}

type Listener = Parameters<ServerInterceptingCallInterface['start']>[0]

/** It is its own listener, which saves two objects a call: a host has a call open for each VM. */
class LimitedCall extends ServerInterceptingCall implements Listener {
  readonly #call: ServerInterceptingCallInterface
  readonly #opened: OpenedCall
  #listener: Listener | undefined
  #bytes = 0
  #hasRequest = false
  #isOver = false

  constructor(call: ServerInterceptingCallInterface, opened: OpenedCall) {
    super(call)
    this.#call = call
    this.#opened = opened
    opened.stream.on('data', (chunk: Buffer) => this.#take(chunk.length, 'ordinary'))
    opened.stream.on('close', () => this.#onClose())
  }

  override start(listener: Listener): void {
    const { refusal, totals } = this.#opened
    // The method never sees a call that is refused at its start.
    if (refusal !== undefined) return
    this.#listener = listener
    totals.inTurn(() => this.#call.start(this))
  }

  onReceiveMetadata(metadata: Metadata): void {
    this.#take(headerBytes(metadata), 'ordinary')
    this.#listener?.onReceiveMetadata(metadata)
  }

  onReceiveMessage(message: Buffer): void {
    if (!this.#isOver && this.#isWelcome(message)) this.#listener?.onReceiveMessage(message)
  }

  onReceiveHalfClose(): void {
    if (!this.#isOver) this.#listener?.onReceiveHalfClose()
  }

  onCancel(): void {
    this.#isOver = true
    this.#listener?.onCancel()
  }

  refuse(details: string): void {
    this.#isOver = true
    this.sendStatus({ code: StatusCode.RESOURCE_EXHAUSTED, details })
    // The peer may never complete its request.
    if (!this.#hasRequest) afterStatus(this.#opened.stream, () => this.#opened.stream.close())
  }

  override sendMessage(message: Uint8Array, callback: () => void): void {
    const { length } = message
    if (!this.#take(length, length <= SHORT_BYTES ? 'reserved' : 'ordinary', `response of ${length} bytes: `))
      return
    super.sendMessage(message, () => {
      this.#give(length)
      callback()
    })
  }

  #onClose(): void {
    const { isStream, refusal, totals } = this.#opened
    this.#isOver = true
    totals.giveBytes(this.#bytes)
    if (refusal !== undefined) return
    if (isStream) totals.closeStream()
    else totals.closeCall(0)
  }

  #isWelcome(message: Buffer): boolean {
    const { messageBytes, totals } = this.#opened
    totals.hasCall()
    if (messageBytes === undefined) {
      this.#hasRequest = true
      return true
    }
    // A message is not counted any longer, because a stream holds only a few unanswered ones.
    this.#give(message.length)
    if (message.length <= messageBytes) return true
    this.refuse(`message of ${message.length} bytes is larger than ${messageBytes}, the limit of a stream`)
    return false
  }

  #take(bytes: number, share: 'ordinary' | 'reserved', what = ''): boolean {
    if (this.#isOver) return false
    const refusal = this.#opened.totals.takeBytes(bytes, share)
    if (refusal === undefined) this.#bytes += bytes
    else this.refuse(`${what}${refusal}`)
    return refusal === undefined
  }

  #give(bytes: number): void {
    if (this.#isOver) return
    this.#bytes -= bytes
    this.#opened.totals.giveBytes(bytes)
  }
}

/** A status is a header of its own after messages. */
function afterStatus(stream: ServerHttp2Stream, task: () => void): void {
  if (stream.endAfterHeaders || !stream.headersSent) setImmediate(task)
  else stream.once('wantTrailers', () => setImmediate(task))
}

/** grpc-js shows incomplete messages and unsent answers only on its private HTTP/2 stream. */
function streamOf(call: ServerInterceptingCallInterface): ServerHttp2Stream {
  const stream = 'stream' in call ? call.stream : undefined
  if (!isHttp2Stream(stream)) throw new Error('grpc-js: the call has no HTTP/2 stream')
  return stream
}

function isHttp2Stream(value: unknown): value is ServerHttp2Stream {
  return value instanceof Duplex && 'rstCode' in value
}

function headerBytes(metadata: Metadata): number {
  let bytes = 0
  for (const [key, values] of Object.entries(metadata.toJSON())) {
    for (const value of values) bytes += key.length + value.length
  }
  return bytes
}
