import type { Duplex } from 'node:stream'
import { cancelled } from '../../base/abort.ts'
import { type AgentError, messageOf, StatusCode, type StatusCodeName } from '../../base/errors.ts'
import { MAX_OPEN_CALLS, type ServedConnection } from '../connection.ts'
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
export interface ConnectionLimits {
  readonly openCalls: number
  /** Bytes of the encoded requests of all open calls. */
  readonly openRequestBytes: number
  /** Bytes of answers that wait to be written; beyond them the connection is closed. */
  readonly unreadBytes: number
  /** Milliseconds in which the peer must complete a frame header that it has begun. */
  readonly headerMs: number
}

/** Far above what a host needs, which copies files in pieces of a megabyte, one after the other. */
export const DEFAULT_LIMITS: ConnectionLimits = {
  openCalls: MAX_OPEN_CALLS,
  openRequestBytes: 32 * 1024 * 1024,
  unreadBytes: 64 * 1024 * 1024,
  headerMs: 10_000,
}

export interface ServerConnectionOptions {
  readonly methods: MethodTable
  /** Names the connection in logs. */
  readonly peer: string
  readonly startTimer: StartTimer
  readonly limits?: ConnectionLimits
}

interface OpenCall {
  readonly abort: AbortController
  readonly requestBytes: number
}

/** Longer error texts are truncated: people read them. */
const MAX_ERROR_CHARACTERS = 16 * 1024

/**
 * Serves ttRPC on one accepted socket until either side closes it. Calls run side by side and are answered as they
 * finish. While the peer does not read its answers, nothing more is read from it.
 */
export class TtrpcServerConnection implements ServedConnection {
  readonly #socket: Duplex
  readonly #options: ServerConnectionOptions
  readonly #limits: ConnectionLimits
  readonly #services: ReadonlySet<string>
  readonly #reader: FrameReader
  readonly #calls = new Map<number, OpenCall>()
  #openRequestBytes = 0
  #stopHeaderTimer: (() => void) | undefined
  #draining = false
  #ended = false

  constructor(socket: Duplex, options: ServerConnectionOptions) {
    this.#socket = socket
    this.#options = options
    this.#limits = options.limits ?? DEFAULT_LIMITS
    this.#services = serviceNames(options.methods)
    this.#reader = new FrameReader({
      onFrame: (header, payload) => this.#onFrame(header, payload),
      onOversizedFrame: (header) =>
        this.#refuse(
          header.streamId,
          'RESOURCE_EXHAUSTED',
          `message of ${header.payloadBytes} bytes is larger than ${MAX_FRAME_PAYLOAD_BYTES}`,
        ),
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
    this.#reader.push(chunk)
    const after = this.#reader.incompleteHeader
    if (after === before) return
    this.#stopHeaderTimer?.()
    this.#stopHeaderTimer =
      after === undefined
        ? undefined
        : this.#options.startTimer(this.#limits.headerMs, () => this.#socket.destroy())
  }

  #onFrame(header: FrameHeader, payload: Uint8Array): void {
    const { streamId, type } = header
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
    const method = this.#options.methods.get(`${request.service}/${request.method}`)
    if (method === undefined) {
      this.#refuseUnknown(streamId, request)
    } else if (this.#draining) {
      this.#refuse(streamId, 'UNAVAILABLE', 'the agent is stopping')
    } else if (this.#calls.size >= this.#limits.openCalls) {
      this.#refuse(streamId, 'RESOURCE_EXHAUSTED', `${this.#calls.size} calls are open on this connection`)
    } else if (this.#openRequestBytes + bytes.length > this.#limits.openRequestBytes) {
      this.#refuse(streamId, 'RESOURCE_EXHAUSTED', 'the open calls of this connection hold too many bytes')
    } else {
      this.#serve(streamId, method, request, bytes.length)
    }
  }

  #serve(streamId: number, method: Method, request: TtrpcRequest, requestBytes: number): void {
    const call: OpenCall = { abort: new AbortController(), requestBytes }
    this.#calls.set(streamId, call)
    this.#openRequestBytes += requestBytes
    method(request.payload, {
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
    } else {
      this.#send(encodeResponseFrame(streamId, payload, bulk?.length), bulk, delivered)
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
    this.#send(encodeErrorFrame(streamId, { code: StatusCode[code], message: text }))
  }

  /** Writes a frame, whose end may be in a buffer of its own: with one write(2) while the socket takes it. */
  #send(frame: Buffer, bulk?: Uint8Array, delivered?: (written: boolean) => void): void {
    if (this.#ended) {
      delivered?.(false)
      return
    }
    const written = delivered === undefined ? undefined : (error?: Error | null) => delivered(error == null)
    if (bulk === undefined) {
      this.#socket.write(frame, written)
    } else {
      this.#socket.cork()
      this.#socket.write(frame)
      this.#socket.write(bulk, written)
      this.#socket.uncork()
    }
    this.#holdBack()
  }

  /** Reads nothing more while the peer does not read. Open calls are still answered. */
  #holdBack(): void {
    const { writableLength, writableNeedDrain } = this.#socket
    // The stream asks for a wait even when the kernel has taken everything.
    if (writableNeedDrain && writableLength > 0 && !this.#socket.isPaused()) {
      this.#socket.pause()
      this.#socket.once('drain', () => this.#socket.resume())
    }
    if (writableLength > this.#limits.unreadBytes) this.#socket.destroy()
  }

  /** The peer is gone: open calls are aborted, and no answer is written. */
  #onGone(): void {
    if (this.#ended) return
    this.#ended = true
    this.#stopHeaderTimer?.()
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
