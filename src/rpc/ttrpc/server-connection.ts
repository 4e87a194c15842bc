import type { Duplex } from 'node:stream'
import { cancelled } from '../../base/abort.ts'
import { type AgentError, messageOf, StatusCode, type StatusCodeName } from '../../base/errors.ts'
import type { ServedConnection } from '../connection.ts'
import { type ConnectionTotals, LIMITS, type Share, shareOf } from '../limits.ts'
import { type Encoded, type Method, type MethodTable, type Outcome, serviceNames } from '../method.ts'
import type { StartTimer } from '../timer.ts'
import { FrameFlag, type FrameHeader, FrameReader, FrameType, MAX_FRAME_PAYLOAD_BYTES } from './frame.ts'
import {
  decodeRequest,
  encodeErrorFrame,
  encodeResponseFrame,
  responseBytes,
  type TtrpcRequest,
  timeoutMsOf,
} from './messages.ts'

/** The limits of one connection. A call beyond them is answered RESOURCE_EXHAUSTED. */
export type ConnectionLimits = { readonly [Name in keyof typeof LIMITS.connection]: number }

export interface ServerConnectionOptions {
  readonly methods: MethodTable
  /** Names the connection in logs. */
  readonly peer: string
  readonly startTimer: StartTimer
  readonly limits?: ConnectionLimits
  /** What this connection takes of the limits of all connections. */
  readonly totals: ConnectionTotals
}

interface OpenCall {
  readonly abort: AbortController
  readonly requestBytes: number
}

/** Longer error texts are truncated: people read them. */
const MAX_ERROR_CHARACTERS = 16 * 1024

/** Answers of so many bytes have all of the reserve: an error in their place would be as long. */
const SHORT_ANSWER_BYTES = 1024

/** An incomplete request of so many bytes has all of the reserve: it may be a call that has. */
const SHORT_REQUEST_BYTES = 4096

/** Errors that are sent although the total has no room for them, in bytes; with more the peer does not read. */
const UNCOUNTED_BYTES = 64 * 1024

/**
 * Serves ttRPC on one accepted socket until either side closes it. Calls run side by side and are answered as they
 * finish. While the peer does not read its answers, no more of its requests are served.
 */
export class TtrpcServerConnection implements ServedConnection {
  readonly #socket: Duplex
  readonly #options: ServerConnectionOptions
  readonly #limits: ConnectionLimits
  readonly #services: ReadonlySet<string>
  readonly #totals: ConnectionTotals
  readonly #reader: FrameReader
  readonly #calls = new Map<number, OpenCall>()
  #openRequestBytes = 0
  /** Bytes of answers that are counted in the totals. */
  #answerBytes = 0
  /** Bytes of errors that are not. */
  #uncountedBytes = 0
  #framesLeft = 0
  /** Whether answers wait for the peer to read. */
  #isHeldBack = false
  /** Why the latest frame was dropped. */
  #noRoom: string | undefined
  /** What has been read and not served yet. */
  #rest: Buffer | undefined
  #stopHeaderTimer: (() => void) | undefined
  #draining = false
  #ended = false

  constructor(socket: Duplex, options: ServerConnectionOptions) {
    this.#socket = socket
    this.#options = options
    this.#limits = options.limits ?? LIMITS.connection
    this.#totals = options.totals
    this.#services = serviceNames(options.methods)
    this.#reader = new FrameReader({
      onFrame: (header, payload) => this.#onFrame(header, payload),
      onOversizedFrame: (header) =>
        this.#refuse(
          header.streamId,
          'RESOURCE_EXHAUSTED',
          `message of ${header.payloadBytes} bytes is larger than ${MAX_FRAME_PAYLOAD_BYTES}`,
        ),
      onHold: (bytes, { payloadBytes }) => {
        this.#noRoom = this.#totals.takeBytes(
          bytes,
          payloadBytes <= SHORT_REQUEST_BYTES ? 'reserved' : 'ordinary',
        )
        return this.#noRoom === undefined
      },
      onRelease: (bytes) => this.#totals.giveBytes(bytes),
      onDroppedFrame: ({ streamId }) => this.#refuse(streamId, 'RESOURCE_EXHAUSTED', this.#noRoom ?? ''),
    })
  }

  /** Begins to serve; `firstBytes` have been read from the socket already. */
  start(firstBytes: Buffer): void {
    this.#socket.on('data', (chunk: Buffer) => this.#onData(chunk))
    this.#socket.on('end', () => this.#onGone())
    this.#socket.on('close', () => this.#onGone())
    // A socket error is followed by 'close', which is handled.
    this.#socket.on('error', () => {})
    if (firstBytes.length > 0) this.#onData(firstBytes)
    this.#socket.resume()
  }

  /** Takes no new calls, and closes the connection as soon as those in progress are answered. */
  drain(): void {
    this.#draining = true
    this.#endWhenDrained()
  }

  #onData(chunk: Buffer): void {
    const before = this.#reader.incompleteHeader
    this.#framesLeft = this.#limits.requestsAtOnce
    const read = this.#reader.push(chunk)
    const after = this.#reader.incompleteHeader
    if (after !== before) {
      this.#stopHeaderTimer?.()
      this.#stopHeaderTimer =
        after === undefined
          ? undefined
          : this.#options.startTimer(this.#limits.headerMs, () => this.#socket.destroy())
    }
    if (read < chunk.length) {
      this.#rest = chunk.subarray(read)
      this.#socket.pause()
      if (!this.#isHeldBack) setImmediate(() => this.#continue())
    }
  }

  /** Serves what has been read, then reads on. */
  #continue(): void {
    if (this.#ended || this.#isHeldBack) return
    const rest = this.#rest
    this.#rest = undefined
    if (rest !== undefined) this.#onData(rest)
    if (this.#rest === undefined && !this.#isHeldBack) this.#socket.resume()
  }

  #onFrame(header: FrameHeader, payload: Uint8Array): void {
    const { streamId, type } = header
    this.#framesLeft -= 1
    if (type === FrameType.data) {
      this.#onDataFrame(header)
    } else if (type !== FrameType.request) {
      this.#refuse(streamId, 'INVALID_ARGUMENT', `message type ${type} is not a request`)
    } else if (streamId % 2 === 0) {
      this.#refuse(streamId, 'INVALID_ARGUMENT', 'stream id must be odd')
    } else if (this.#calls.has(streamId)) {
      this.#refuse(streamId, 'INVALID_ARGUMENT', `stream id ${streamId} is in use by a call in progress`)
    } else {
      this.#onRequest(streamId, payload)
    }
    if (this.#framesLeft <= 0 || this.#isHeldBack) this.#reader.halt()
  }

  /** Every method is unary and has one frame, its request. A frame that only ends the client's side is ignored. */
  #onDataFrame({ streamId, flags, payloadBytes }: FrameHeader): void {
    const isBareEnd = payloadBytes === 0 && (flags & FrameFlag.remoteClosed) !== 0
    if (isBareEnd) return
    this.#cancel(streamId, cancelled())
    this.#refuse(streamId, 'INVALID_ARGUMENT', `stream ${streamId} takes no data: all methods are unary`)
  }

  #onRequest(streamId: number, bytes: Uint8Array): void {
    let request: TtrpcRequest
    try {
      request = decodeRequest(bytes)
    } catch (error) {
      this.#refuse(streamId, 'INVALID_ARGUMENT', `undecodable ttRPC request: ${messageOf(error)}`)
      return
    }
    const name = `${request.service}/${request.method}`
    const method = this.#options.methods.get(name)
    if (method === undefined) {
      this.#refuseUnknown(streamId, request)
      return
    }
    this.#totals.hasCall()
    if (this.#draining) {
      this.#refuse(streamId, 'UNAVAILABLE', 'the agent is stopping')
      return
    }
    const refusal = this.#refusalOf(name, bytes.length)
    if (refusal === undefined) this.#serve(streamId, method, request, bytes.length)
    else this.#refuse(streamId, 'RESOURCE_EXHAUSTED', refusal)
  }

  /** Opens the call in the totals, or returns which limit refuses it. */
  #refusalOf(method: string, requestBytes: number): string | undefined {
    const { openCalls, reservedCalls, requestBytes: mostBytes } = this.#limits
    const isReserved = shareOf(method) === 'reserved'
    if (this.#calls.size >= (isReserved ? openCalls + reservedCalls : openCalls)) {
      return `${this.#calls.size} calls are open on this connection`
    }
    if (!isReserved && this.#openRequestBytes + requestBytes > mostBytes) {
      return 'the open calls of this connection hold too many bytes'
    }
    return this.#totals.openCall(method, requestBytes)
  }

  #serve(streamId: number, method: Method, request: TtrpcRequest, requestBytes: number): void {
    const call: OpenCall = { abort: new AbortController(), requestBytes }
    this.#calls.set(streamId, call)
    this.#openRequestBytes += requestBytes
    method(ownBytes(request.payload), {
      timeoutMs: timeoutMsOf(request.timeoutNano),
      hangup: call.abort.signal,
      peer: this.#options.peer,
      framing: 'ttrpc',
    }).then(
      (outcome) => this.#onOutcome(streamId, call, outcome),
      // Methods do not reject; the agent must survive one that does.
      (error) => this.#onOutcome(streamId, call, { ok: false, code: 'INTERNAL', message: messageOf(error) }),
    )
  }

  #onOutcome(streamId: number, call: OpenCall, outcome: Outcome): void {
    // A call that the peer has left counts until its work is undone.
    this.#totals.closeCall(call.requestBytes)
    const isOpen = this.#calls.get(streamId) === call
    if (isOpen) this.#close(streamId, call)
    if (!outcome.ok) {
      if (isOpen) this.#refuse(streamId, outcome.code, outcome.message)
    } else if (!isOpen) {
      outcome.delivered?.(false)
    } else {
      this.#answer(streamId, outcome, outcome.delivered)
    }
    if (this.#draining) this.#endWhenDrained()
  }

  #answer(streamId: number, { payload, bulk }: Encoded, delivered?: (written: boolean) => void): void {
    const size = payload.length + (bulk?.length ?? 0)
    if (responseBytes(size) > MAX_FRAME_PAYLOAD_BYTES) {
      delivered?.(false)
      const message = `response of ${size} bytes is larger than ${MAX_FRAME_PAYLOAD_BYTES}`
      this.#refuse(streamId, 'RESOURCE_EXHAUSTED', message)
      return
    }
    const share = size <= SHORT_ANSWER_BYTES ? 'reserved' : 'ordinary'
    const refusal = this.#takeAnswer(size, share)
    if (refusal === undefined) {
      this.#send(encodeResponseFrame(streamId, payload, bulk?.length), bulk, delivered)
    } else {
      delivered?.(false)
      this.#refuse(streamId, 'RESOURCE_EXHAUSTED', `response of ${size} bytes: ${refusal}`)
    }
  }

  #refuseUnknown(streamId: number, { service, method }: TtrpcRequest): void {
    const message = this.#services.has(service)
      ? `${service}/${method} method is not implemented`
      : `${service} service does not exist`
    this.#refuse(streamId, 'UNIMPLEMENTED', message)
  }

  #refuse(streamId: number, code: StatusCodeName, message: string): void {
    const text = message.slice(0, MAX_ERROR_CHARACTERS).toWellFormed()
    const frame = encodeErrorFrame(streamId, { code: StatusCode[code], message: text })
    if (this.#takeAnswer(frame.length, 'reserved') !== undefined) this.#uncountedBytes += frame.length
    if (this.#uncountedBytes > UNCOUNTED_BYTES) this.#socket.destroy()
    this.#send(frame)
  }

  /** Counts an answer that is about to be sent. Returns why it cannot be, if the peer has left others unread. */
  #takeAnswer(size: number, share: Share): string | undefined {
    // The kernel takes most answers at once.
    if (this.#socket.writableLength === 0 && size <= SHORT_ANSWER_BYTES) return undefined
    const refusal = this.#totals.takeBytes(size, share)
    if (refusal === undefined) this.#answerBytes += size
    return refusal
  }

  /** Writes a frame, whose end may be in a buffer of its own: with one write(2) while the socket takes it. */
  #send(frame: Buffer, bulk?: Uint8Array, delivered?: (written: boolean) => void): void {
    if (this.#ended) {
      delivered?.(false)
      return
    }
    const written = (error?: Error | null) => {
      this.#giveAnswers()
      delivered?.(error == null)
    }
    if (bulk === undefined) {
      this.#socket.write(frame, written)
    } else {
      this.#socket.cork()
      this.#socket.write(frame)
      this.#socket.write(bulk, written)
      this.#socket.uncork()
    }
    this.#giveAnswers()
    this.#holdBack()
  }

  /** What the kernel has taken is not counted any more. */
  #giveAnswers(): void {
    if (this.#socket.writableLength === 0) this.#uncountedBytes = 0
    const taken = this.#answerBytes - this.#socket.writableLength
    if (taken <= 0) return
    this.#answerBytes -= taken
    this.#totals.giveBytes(taken)
  }

  /** Serves nothing more while the peer does not read. Open calls are still answered. */
  #holdBack(): void {
    const { writableLength, writableNeedDrain } = this.#socket
    // The stream asks for a wait even when the kernel has taken everything.
    if (writableNeedDrain && writableLength > 0 && !this.#isHeldBack) {
      this.#isHeldBack = true
      this.#socket.pause()
      this.#socket.once('drain', () => {
        this.#isHeldBack = false
        this.#continue()
      })
    }
    if (writableLength > this.#limits.answerBytes) this.#socket.destroy()
  }

  /** The peer is gone: open calls are aborted, and no answer is written. */
  #onGone(): void {
    if (this.#ended) return
    this.#ended = true
    this.#stopHeaderTimer?.()
    this.#rest = undefined
    this.#reader.release()
    for (const streamId of [...this.#calls.keys()]) this.#cancel(streamId, cancelled())
    this.#socket.end()
  }

  #cancel(streamId: number, reason: AgentError): void {
    const call = this.#calls.get(streamId)
    if (call === undefined) return
    this.#close(streamId, call)
    call.abort.abort(reason)
  }

  #close(streamId: number, call: OpenCall): void {
    this.#calls.delete(streamId)
    this.#openRequestBytes -= call.requestBytes
  }

  #endWhenDrained(): void {
    if (this.#calls.size > 0 || this.#ended) return
    this.#ended = true
    this.#stopHeaderTimer?.()
    this.#socket.end()
  }
}

/** The bytes without the rest of what was read with them, which a long call would keep. */
function ownBytes(payload: Uint8Array): Uint8Array {
  return payload.length * 2 < payload.buffer.byteLength ? new Uint8Array(payload) : payload
}
