/** A span that is over. */
export interface FinishedSpan {
  /** The name of the RPC, or of the step. */
  readonly name: string
  readonly kind: 'call' | 'step'
  /** 16 bytes in hexadecimal. */
  readonly traceId: string
  /** 8 bytes in hexadecimal. */
  readonly spanId: string
  /** Undefined when the span begins a trace. */
  readonly parentSpanId: string | undefined
  /** Nanoseconds since 1970. */
  readonly startNs: bigint
  readonly endNs: bigint
  readonly attributes: Readonly<Record<string, string>>
  readonly isFailed: boolean
}

/** The agent, as spans name it. */
export interface Service {
  readonly name: string
  readonly version: string
}

/** What all spans of an agent have in common, in OpenTelemetry's words. */
export function resourceOf({ name, version }: Service): Readonly<Record<string, string>> {
  return { 'service.name': name, 'service.version': version }
}

/** Bit 0 of the flags: the caller wants the call traced. Other calls have no spans. */
export const SAMPLED = 1
