/** The key of W3C's trace context in the metadata of a call. */
export const TRACEPARENT = 'traceparent'

/** A trace context of the known version has 55 characters; of a longer value nothing is looked at. */
const MOST_CHARACTERS = 64

/** Stands for a value that is too long to be looked at: no trace context either. */
const TOO_LONG = 'too long'

/** What a `traceparent` names: the caller's trace and its span. */
export interface TraceContext {
  /** 16 bytes in hexadecimal. */
  readonly traceId: string
  /** 8 bytes in hexadecimal. */
  readonly spanId: string
  /** Whether the caller wants the call traced. */
  readonly isSampled: boolean
}

/** Version, trace, span, flags; only later versions than 00 may have more. Ids of zeros are none (W3C Trace Context). */
const FIELDS = /^(?!ff)([\da-f]{2})-((?!0{32})[\da-f]{32})-((?!0{16})[\da-f]{16})-([\da-f]{2})(-.*)?$/

/** Undefined for what is no trace context. */
export function parseTraceparent(value: string): TraceContext | undefined {
  const [, version, traceId, spanId, flags, more] = FIELDS.exec(value) ?? []
  if (traceId === undefined || spanId === undefined || (version === '00' && more !== undefined))
    return undefined
  return { traceId, spanId, isSampled: (Number(`0x${flags}`) & 1) === 1 }
}

/** A `traceparent` as it is carried on. */
export function boundTraceparent(value: string): string {
  return value.length <= MOST_CHARACTERS ? value : TOO_LONG
}

/** The same of bytes, of which a text is made only when they are few. */
export function boundTraceparentBytes(value: Uint8Array): string {
  return value.length <= MOST_CHARACTERS ? Buffer.from(value).toString('latin1') : TOO_LONG
}
