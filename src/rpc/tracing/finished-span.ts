export interface FinishedSpan {
  /** The name of the RPC, of the operation, or of the step. */
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

export interface Service {
  readonly name: string
  readonly version: string
  /** The host that it runs on, where there are several. */
  readonly host?: string | undefined
}

/** OpenTelemetry's resource attributes. */
export function resourceOf({ host, name, version }: Service): Readonly<Record<string, string>> {
  return { 'service.name': name, 'service.version': version, ...(host && { 'host.name': host }) }
}

/** Bit 0 of the trace flags (W3C Trace Context). A call of a caller that clears it has no spans. */
export const SAMPLED = 1
