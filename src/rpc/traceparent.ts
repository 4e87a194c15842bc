import { randomBytes } from 'node:crypto'

/** The key of W3C's trace context in the metadata of a call. */
export const TRACEPARENT = 'traceparent'

/** A trace context of version 00 has 55 characters; longer values than this are not parsed. */
const MOST_CHARACTERS = 64

/** Replaces a value that is too long; it is no trace context. */
const TOO_LONG = 'too long'

export interface TraceContext {
  /** 16 bytes in hexadecimal. */
  readonly traceId: string
  /** 8 bytes in hexadecimal. */
  readonly spanId: string
  readonly isSampled: boolean
}

/** Version, trace, span, flags; only versions after 00 may have more. Ids of zeros are invalid (W3C Trace Context). */
const FIELDS = /^(?!ff)([\da-f]{2})-((?!0{32})[\da-f]{32})-((?!0{16})[\da-f]{16})-([\da-f]{2})(-.*)?$/

export function parseTraceparent(value: string): TraceContext | undefined {
  const [, version, traceId, spanId, flags, more] = FIELDS.exec(value) ?? []
  if (traceId === undefined || spanId === undefined || (version === '00' && more !== undefined))
    return undefined
  return { traceId, spanId, isSampled: (Number(`0x${flags}`) & 1) === 1 }
}

/** Of a span that is sampled. */
export function traceparentOf({ traceId, spanId }: Pick<TraceContext, 'traceId' | 'spanId'>): string {
  return `00-${traceId}-${spanId}-01`
}

export function newTraceId(): string {
  return randomBytes(16).toString('hex')
}

export function newSpanId(): string {
  return randomBytes(8).toString('hex')
}

export function boundTraceparent(value: string): string {
  return value.length <= MOST_CHARACTERS ? value : TOO_LONG
}

/** Makes a text of the bytes only when they are few. */
export function boundTraceparentBytes(value: Uint8Array): string {
  return value.length <= MOST_CHARACTERS ? Buffer.from(value).toString('latin1') : TOO_LONG
}
