import { cancelled, LateAbort } from '../../base/abort.ts'
import { type AgentError, messageOf, StatusCode, type StatusCodeName } from '../../base/errors.ts'
import type { ServedConnection } from '../connection.ts'
import { type ConnectionTotals, LIMITS, type Share } from '../limits.ts'
import { type Encoded, type Method, type MethodTable, type Outcome, serviceNames } from '../method.ts'
import type { StartTimer } from '../timer.ts'
import { type Arrival, BrokerFraming, type BrokerLink } from './broker-framing.ts'
import type { ConnectedSocket, SendNow } from './data-socket-writer.ts'
import {
  FRAME_HEADER_BYTES,
  FrameFlag,
  type FrameHeader,
  FrameType,
  MAX_FRAME_PAYLOAD_BYTES,
} from './frame.ts'
import {
  decodeRequest,
  encodeErrorFrame,
  encodeResponseFrame,
  responseBytes,
  type TtrpcRequest,
} from './messages.ts'
import { type Asker, type OpenCall, TtrpcCall } from './open-call.ts'
import { type FrameFiles, type StoredRequest, storedRequest } from './stored-request.ts'

export type ConnectionLimits = { readonly [Name in keyof typeof LIMITS.connection]: number }

export interface AcceptedTtrpc {
  readonly methods: MethodTable
  readonly peer: string
  readonly startTimer: StartTimer
  readonly link: BrokerLink
  readonly sendNow?: SendNow
  readonly files?: FrameFiles
  readonly limits?: ConnectionLimits
  readonly totals: ConnectionTotals
}

/** The payload of a frame, or what a frame in a file holds. */
type Received = Uint8Array | StoredRequest

/** Longer error texts are truncated, because people read them. */
const MAX_ERROR_CHARACTERS = 16 * 1024

/** An answer up to this size may use the whole reserve, because an error in its place would be as long. */
const SHORT_ANSWER_BYTES = 1024

/** An incomplete request up to this size may use the whole reserve, because its call may have the share `reserved`. */
const SHORT_REQUEST_BYTES = 4096

/** A frame counts once more for each such part: reading it takes as long as serving a short one. */
const LONG_FRAME_BYTES = 64 * 1024

/** Bytes of errors that are sent beyond the total; with more of them unread, the connection is closed. */
const UNCOUNTED_BYTES = 64 * 1024

/** Serves ttRPC on a data socket of the broker. Serves no further requests while the peer does not read answers. */
export class TtrpcServerConnection implements ServedConnection {
  readonly #socket: ConnectedSocket
  readonly #accepted: AcceptedTtrpc
  readonly #limits: ConnectionLimits
  readonly #services: ReadonlySet<string>
  readonly #totals: ConnectionTotals
  readonly #framing: BrokerFraming
  readonly #calls = new Map<number, OpenCall>()
  #openRequestBytes = 0
  #answerBytes = 0
  /** Bytes of unread errors that are not in the totals. */
  #uncountedBytes = 0
  #framesLeft = 0
  /** Answers wait for the peer to read. */
  #isHeldBack = false
  /** The memory of the bytes that were read last. */
  #chunk: ArrayBufferLike | undefined
  /** Bytes that were read but not served yet. */
  #rest: Buffer | undefined
  #draining = false
  /** The peer sends nothing more. */
  #isGone = false
  /** Nothing more is sent to the peer. */
  #ended = false

  constructor(socket: ConnectedSocket, accepted: AcceptedTtrpc) {
    this.#socket = socket
    this.#accepted = accepted
    this.#limits = accepted.limits ?? LIMITS.connection
    this.#totals = accepted.totals
    this.#services = serviceNames(accepted.methods)
    const events = {
      onFrame: (header: FrameHeader, payload: Uint8Array, arrival: Arrival) =>
        this.#onFrame(header, payload, arrival),
      onStoredFrame: (header: FrameHeader, fd: number, arrival: Arrival) =>
        this.#onStoredFrame(header, fd, arrival),
      onRefusedFrame: ({ streamId }: FrameHeader, arrival: Arrival, reason: string) =>
        this.#refuse({ streamId, arrival }, 'RESOURCE_EXHAUSTED', reason),
      onHold: (bytes: number) =>
        this.#totals.takeBytes(bytes, bytes <= SHORT_REQUEST_BYTES ? 'reserved' : 'ordinary'),
      onRelease: (bytes: number) => this.#totals.giveBytes(bytes),
      onTaken: () => this.#onTaken(),
    }
    this.#framing = new BrokerFraming(socket, events, accepted)
  }

  start(): void {
    this.#socket.on('data', (chunk: Buffer) => {
      this.#onData(chunk)
      // The next read may overwrite the chunk.
      if (this.#rest !== undefined) this.#rest = Buffer.from(this.#rest)
    })
    this.#socket.on('end', () => this.#onGone())
    this.#socket.on('close', () => this.#onGone())
    // A socket error is followed by 'close', which is handled.
    this.#socket.on('error', () => {})
    this.#socket.resume()
  }

  drain(): void {
    this.#draining = true
    this.#endWhenDrained()
  }

  #onData(chunk: Buffer): void {
    this.#chunk = chunk.buffer
    this.#framesLeft = this.#limits.requestsAtOnce
    const read = this.#framing.push(chunk)
    if (read < chunk.length) {
      this.#rest = chunk.subarray(read)
      this.#socket.pause()
      if (!this.#isHeldBack) setImmediate(() => this.#continue())
    }
  }

  #continue(): void {
    if (this.#ended || this.#isHeldBack) return
    const rest = this.#rest
    this.#rest = undefined
    if (rest !== undefined) this.#onData(rest)
    if (this.#rest === undefined && !this.#isHeldBack) this.#socket.resume()
  }

  #onStoredFrame(header: FrameHeader, fd: number, arrival: Arrival): void {
    const { files, methods } = this.#accepted
    if (files === undefined) return
    const { type, payloadBytes } = header
    const dataFieldOf = (method: string) => methods.get(method)?.dataField
    const stored =
      type === FrameType.request
        ? storedRequest(files, { fd, frameBytes: FRAME_HEADER_BYTES + payloadBytes }, dataFieldOf)
        : undefined
    if (stored === undefined) {
      const payload = files.read(fd, FRAME_HEADER_BYTES, payloadBytes)
      files.close(fd)
      this.#onFrame(header, payload, arrival)
    } else if (!this.#onFrame(header, stored, arrival)) stored.close()
  }

  /** Returns whether a call has begun. */
  #onFrame(header: FrameHeader, received: Received, arrival: Arrival): boolean {
    let hasBegun = false
    const { streamId, type } = header
    const asker = { streamId, arrival }
    this.#framesLeft -= 1 + Math.floor(header.payloadBytes / LONG_FRAME_BYTES)
    if (type === FrameType.data) {
      this.#onDataFrame(header, asker)
    } else if (type !== FrameType.request) {
      this.#refuse(asker, 'INVALID_ARGUMENT', `message type ${type} is not a request`)
    } else if (streamId % 2 === 0) {
      this.#refuse(asker, 'INVALID_ARGUMENT', 'stream id must be odd')
    } else if (this.#calls.has(streamId)) {
      this.#refuse(asker, 'INVALID_ARGUMENT', `stream id ${streamId} is in use by a call in progress`)
    } else {
      hasBegun = this.#onRequest(asker, received, header.payloadBytes)
    }
    if (this.#framesLeft <= 0 || this.#isHeldBack) this.#framing.halt()
    return hasBegun
  }

  /** All methods are unary, so the only valid data frame ends the client's side, and is ignored. */
  #onDataFrame({ streamId, flags, payloadBytes }: FrameHeader, asker: Asker): void {
    const isBareEnd = payloadBytes === 0 && (flags & FrameFlag.remoteClosed) !== 0
    if (isBareEnd) {
      this.#framing.nothing(asker.arrival)
      return
    }
    const call = this.#calls.get(streamId)
    if (call !== undefined) {
      this.#cancel(call, cancelled())
      this.#framing.nothing(call.arrival)
    }
    this.#refuse(asker, 'INVALID_ARGUMENT', `stream ${streamId} takes no data: all methods are unary`)
  }

  /** Returns whether the call has begun. */
  #onRequest(asker: Asker, received: Received, bytes: number): boolean {
    let request: TtrpcRequest
    try {
      request = received instanceof Uint8Array ? decodeRequest(received) : received.request
    } catch (error) {
      this.#refuse(asker, 'INVALID_ARGUMENT', `undecodable ttRPC request: ${messageOf(error)}`)
      return false
    }
    const method = this.#accepted.methods.get(`${request.service}/${request.method}`)
    if (method === undefined) {
      this.#refuseUnknown(asker, request)
      return false
    }
    this.#totals.hasCall()
    if (this.#draining) {
      this.#refuse(asker, 'UNAVAILABLE', 'the agent is stopping')
      return false
    }
    const refusal = this.#refusalOf(method.share, bytes)
    if (refusal === undefined) {
      const call: OpenCall = { ...asker, abort: new LateAbort(), requestBytes: bytes }
      this.#serve(call, method.serve, request, received instanceof Uint8Array ? undefined : received)
    } else this.#refuse(asker, 'RESOURCE_EXHAUSTED', refusal)
    return refusal === undefined
  }

  /** Counts the call, or returns the limit that refuses it. */
  #refusalOf(share: Share, requestBytes: number): string | undefined {
    const { openCalls, reservedCalls, requestBytes: mostBytes } = this.#limits
    const isReserved = share === 'reserved'
    if (this.#calls.size >= (isReserved ? openCalls + reservedCalls : openCalls)) {
      return `${this.#calls.size} calls are open on this connection`
    }
    if (!isReserved && this.#openRequestBytes + requestBytes > mostBytes) {
      return 'the open calls of this connection hold too many bytes'
    }
    return this.#totals.openCall(share, requestBytes)
  }

  #serve(call: OpenCall, method: Method, request: TtrpcRequest, stored: StoredRequest | undefined): void {
    this.#calls.set(call.streamId, call)
    this.#openRequestBytes += call.requestBytes
    const onEnd = (outcome: Outcome) => {
      stored?.close()
      this.#onOutcome(call, outcome)
    }
    const { payload } = request
    const incoming = new TtrpcCall(call, request, {
      peer: this.#accepted.peer,
      wasLost: this.#framing.wasLost,
      data: stored?.data,
    })
    method(payload.buffer === this.#chunk ? new Uint8Array(payload) : payload, incoming).then(
      onEnd,
      // Methods do not reject; the agent must survive one that does.
      (error) => onEnd({ ok: false, code: 'INTERNAL', message: messageOf(error) }),
    )
  }

  #onOutcome(call: OpenCall, outcome: Outcome): void {
    // A cancelled call counts until its work has ended.
    this.#totals.closeCall(call.requestBytes)
    const isOpen = this.#calls.get(call.streamId) === call
    if (isOpen) this.#close(call)
    if (!outcome.ok) {
      if (isOpen) this.#refuse(call, outcome.code, outcome.message)
    } else if (!isOpen) {
      outcome.delivered?.(false)
    } else {
      this.#answer(call, outcome, outcome.delivered)
    }
    if (this.#draining) this.#endWhenDrained()
  }

  #answer(asker: Asker, { payload, bulk }: Encoded, delivered?: (written: boolean) => void): void {
    const size = payload.length + (bulk?.length ?? 0)
    if (responseBytes(size) > MAX_FRAME_PAYLOAD_BYTES) {
      delivered?.(false)
      const message = `response of ${size} bytes is larger than ${MAX_FRAME_PAYLOAD_BYTES}`
      this.#refuse(asker, 'RESOURCE_EXHAUSTED', message)
      return
    }
    const share = size <= SHORT_ANSWER_BYTES ? 'reserved' : 'ordinary'
    const refusal = this.#takeAnswer(size, share)
    if (refusal === undefined) {
      const frame = encodeResponseFrame(asker.streamId, payload, bulk?.length)
      this.#send(asker, frame, bulk, delivered)
    } else {
      delivered?.(false)
      this.#refuse(asker, 'RESOURCE_EXHAUSTED', `response of ${size} bytes: ${refusal}`)
    }
  }

  #refuseUnknown(asker: Asker, { service, method }: TtrpcRequest): void {
    const message = this.#services.has(service)
      ? `${service}/${method} method is not implemented`
      : `${service} service does not exist`
    this.#refuse(asker, 'UNIMPLEMENTED', message)
  }

  #refuse(asker: Asker, code: StatusCodeName, message: string): void {
    this.#accepted.link.refused(asker.arrival.number)
    const text = message.slice(0, MAX_ERROR_CHARACTERS).toWellFormed()
    const frame = encodeErrorFrame(asker.streamId, { code: StatusCode[code], message: text })
    if (this.#takeAnswer(frame.length, 'reserved') !== undefined) this.#uncountedBytes += frame.length
    if (this.#uncountedBytes > UNCOUNTED_BYTES) this.#socket.destroy()
    this.#send(asker, frame)
  }

  /** Counts an answer before it is sent. Returns the reason of a refusal. */
  #takeAnswer(size: number, share: Share): string | undefined {
    // The kernel takes most answers at once.
    if (this.#framing.unsentBytes === 0 && size <= SHORT_ANSWER_BYTES) return undefined
    const refusal = this.#totals.takeBytes(size, share)
    if (refusal === undefined) this.#answerBytes += size
    return refusal
  }

  #send(
    { arrival }: Asker,
    frame: Buffer,
    bulk?: Encoded['bulk'],
    delivered?: (written: boolean) => void,
  ): void {
    if (this.#ended) {
      delivered?.(false)
      return
    }
    this.#framing.send({ arrival, frame, bulk, delivered })
    this.#onTaken()
  }

  /** Stops counting the bytes that the kernel has taken. */
  #onTaken(): void {
    const { unsentBytes } = this.#framing
    if (unsentBytes === 0) this.#uncountedBytes = 0
    const taken = this.#answerBytes - unsentBytes
    if (taken > 0) {
      this.#answerBytes -= taken
      this.#totals.giveBytes(taken)
    }
    this.#holdBack()
  }

  /** Stops serving requests while the peer does not read. Open calls are still answered. */
  #holdBack(): void {
    const { writableLength, writableNeedDrain } = this.#socket
    // `writableNeedDrain` is also set when the kernel has taken everything.
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

  #onGone(): void {
    if (this.#isGone) return
    this.#isGone = true
    this.#framing.close(this.#rest ?? Buffer.alloc(0))
    this.#rest = undefined
    if (this.#ended) return
    this.#ended = true
    for (const call of [...this.#calls.values()]) this.#cancel(call, cancelled())
    this.#socket.end()
  }

  #cancel(call: OpenCall, reason: AgentError): void {
    this.#close(call)
    call.abort.abort(reason)
  }

  #close(call: OpenCall): void {
    this.#calls.delete(call.streamId)
    this.#openRequestBytes -= call.requestBytes
  }

  #endWhenDrained(): void {
    if (this.#calls.size > 0 || this.#ended) return
    this.#ended = true
    this.#framing.flush()
    this.#socket.end()
  }
}
