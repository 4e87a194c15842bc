import { Metadata, type Server, type ServerWritableStream, type ServiceError } from '@grpc/grpc-js'
import { cancelled, deadlineExceeded, LONGEST_TIMER_MS } from '../../base/abort.ts'
import { messageOf, StatusCode } from '../../base/errors.ts'
import { bytesOf } from '../../base/stored-bytes.ts'
import { truncate } from '../../base/truncate.ts'
import {
  type Encoded,
  type Failure,
  type IncomingCall,
  type Method,
  type Outcome,
  REASON,
} from '../method.ts'
import { boundTraceparent, TRACEPARENT } from '../traceparent.ts'
import type { InTurn } from '../turns.ts'

export function serveUnary(
  server: Server,
  name: string,
  method: Method,
  connection: CallingConnection,
): void {
  // Registered as server-streaming, which is the same on the wire for one response: only a streaming handler learns
  // whether its message was written.
  server.register(
    `/${name}`,
    (call: UnaryCall) => serveCall(call, method, connection),
    asBuffer,
    same,
    'serverStream',
  )
}

export interface CallingConnection {
  readonly peer: string
  readonly inTurn: InTurn
  /** Whether its socket has ended with the device, without a hang-up. */
  readonly wasLost: () => boolean
}

type UnaryCall = ServerWritableStream<Buffer, Uint8Array>

function serveCall(call: UnaryCall, method: Method, { peer, inTurn, wasLost }: CallingConnection): void {
  const deadlineMs = Number(call.getDeadline())
  const hangup = new AbortController()
  let answered: Outcome | undefined
  let written = false
  const answer = (outcome: Outcome) => {
    if (call.cancelled) {
      tellDelivery(outcome, false)
      return
    }
    answered = outcome
    if (outcome.ok) {
      call.write(wholeOf(outcome), (error?: Error | null) => {
        written = error === undefined || error === null
      })
      call.end(outcome.trailers && trailersOf(outcome.trailers))
    } else {
      call.emit('error', { ...errorOf(outcome), details: detailsOf(outcome.message) })
    }
  }
  // grpc-js emits 'cancelled' once for every call: when its status has been sent, or when it never will be.
  call.once('cancelled', () => {
    if (answered !== undefined) {
      tellDelivery(answered, written)
      return
    }
    const reason = Date.now() >= deadlineMs ? deadlineExceeded() : cancelled()
    // Aborting the hundreds of calls of one connection at once would block the event loop for long.
    inTurn(() => hangup.abort(reason))
  })
  const timeoutMs = timeoutMsOf(deadlineMs)
  const incoming = {
    timeoutMs,
    hangup: hangup.signal,
    peer,
    framing: 'grpc',
    number: undefined,
    ageMs: 0,
    wasLost,
    ...metadataOf(call),
  } as const
  method(call.request, incoming).then(
    answer,
    // Methods do not reject; the agent must survive one that does.
    (error) => answer({ ok: false, code: 'INTERNAL', message: messageOf(error) }),
  )
}

/** What grpc-js sends of a failure. */
export function errorOf({ code, message, reason }: Failure): Partial<ServiceError> {
  const metadata = reason === undefined ? {} : { metadata: trailersOf({ [REASON]: reason }) }
  return { code: StatusCode[code], details: message, ...metadata }
}

export function metadataOf({
  metadata: pairs,
}: Pick<UnaryCall, 'metadata'>): Pick<IncomingCall, 'metadata' | 'traceparent'> {
  const metadata = (name: string) => pairs.get(name).find((value) => typeof value === 'string')
  const traceparent = metadata(TRACEPARENT)
  return { metadata, traceparent: traceparent && boundTraceparent(traceparent) }
}

function tellDelivery(outcome: Outcome, delivered: boolean): void {
  if (outcome.ok) outcome.delivered?.(delivered)
}

/** `deadlineMs` is milliseconds since the epoch, or Infinity. */
function timeoutMsOf(deadlineMs: number): number | undefined {
  const timeoutMs = Math.max(0, deadlineMs - Date.now())
  return timeoutMs > LONGEST_TIMER_MS ? undefined : timeoutMs
}

/** Clients refuse more than 8 KiB of headers. */
const MAX_DETAILS_BYTES = 6 * 1024

function trailersOf(trailers: Readonly<Record<string, string>>): Metadata {
  const metadata = new Metadata()
  for (const [name, text] of Object.entries(trailers)) {
    // A header has no other characters.
    metadata.set(name, detailsOf(text).replace(/[^ -~]+/g, encodeURI))
  }
  return metadata
}

/** Truncates the text to fit a header, in which grpc-js sends it percent-encoded. */
function detailsOf(message: string): string {
  let details = truncate(message, MAX_DETAILS_BYTES).toWellFormed()
  for (let bytes = encodedBytes(details); bytes > MAX_DETAILS_BYTES; bytes = encodedBytes(details)) {
    details = truncate(message, Math.floor((details.length * MAX_DETAILS_BYTES) / bytes)).toWellFormed()
  }
  return details
}

function encodedBytes(details: string): number {
  return encodeURI(details).length
}

/** One buffer, because grpc-js copies the message in any case to put five bytes before it. */
function wholeOf({ payload, bulk }: Encoded): Uint8Array {
  return bulk === undefined ? payload : Buffer.concat([payload, bytesOf(bulk)])
}

export function asBuffer(payload: Uint8Array): Buffer {
  return Buffer.from(payload.buffer, payload.byteOffset, payload.byteLength)
}

export function same(payload: Buffer): Buffer {
  return payload
}
