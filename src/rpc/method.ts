import type { StoredBytes } from '../base/stored-bytes.ts'
import type { Share } from './limits.ts'
import type { CallStatus } from './status.ts'
import { TRACEPARENT } from './traceparent.ts'

/** Repeated with the same key, a call happens once. */
export const IDEMPOTENCY_KEY = 'idempotency-key'

/** Names a read of a process's output: repeated by the same name, it gets the same bytes. */
export const OUTPUT_READ = 'output-read'

/** The trailer of gRPC with the {@link CallStatus.reason} of a failure. */
export const REASON = 'microvm-reason'

/** The metadata of ttRPC that is not skipped. */
export const KNOWN_METADATA: readonly string[] = [TRACEPARENT, IDEMPOTENCY_KEY, OUTPUT_READ]

export interface IncomingCall {
  /** The time left at the call's arrival; undefined means no limit. At 0 the call does not begin. */
  readonly timeoutMs: number | undefined
  /** Fires when the client hangs up or cancels. Its reason is not usable: gRPC's bundle has error classes of its own. */
  readonly hangup: AbortSignal
  /** Whether `hangup` has fired because the connection's device is gone, without a hang-up of the client. */
  readonly wasLost?: () => boolean
  /** Names the connection in logs, such as `vsock 2:1234` or `unix`. */
  readonly peer: string
  readonly framing: 'ttrpc' | 'grpc'
  /** The broker's number of the request (docs/broker.md); undefined with gRPC. */
  readonly number: bigint | undefined
  /** The time between the arrival of the request at the broker and here; 0 with gRPC. */
  readonly ageMs: number
  /** The previous agent had the request. */
  readonly sentBefore?: boolean
  /** The unchecked trace context of the request. */
  readonly traceparent?: string | undefined
  /** The first text that the caller has sent under a name. Of ttRPC only the names of {@link KNOWN_METADATA}. */
  readonly metadata?: ((name: string) => string | undefined) | undefined
  /** The bytes of {@link ServedMethod.dataField}, which are then not in the payload. Closed when the call has ended. */
  readonly data?: StoredBytes | undefined
}

/** An encoded message: `payload`, then `bulk`, which is separate so that it is not copied. */
export interface Encoded {
  readonly payload: Uint8Array
  readonly bulk?: Uint8Array | StoredBytes | undefined
}

export type Outcome =
  | ({
      readonly ok: true
      readonly delivered?: (written: boolean) => void
      /** Metadata after the answer, by lower-case names; only gRPC sends it. */
      readonly trailers?: Readonly<Record<string, string>>
    } & Encoded)
  | ({ readonly ok: false } & CallStatus)

/** A unary method; never rejects. The framing calls `delivered` once: whether a live connection took the whole answer. */
export type Method = (payload: Uint8Array, call: IncomingCall) => Promise<Outcome>

/** Ends with the messages or when `hangup` fires; never rejects. `send` resolves once the message was sent or dropped. */
export type StreamMethod = (
  payload: Uint8Array,
  call: IncomingCall,
  send: (message: Uint8Array) => Promise<void>,
) => Promise<Failure | undefined>

/** By full name. Only gRPC has such methods. */
export type StreamTable = ReadonlyMap<string, StreamMethod>

/** As {@link StreamMethod}, with requests that end when the client ends them, and that end or throw when it hangs up. */
export type DuplexMethod = (
  requests: AsyncIterable<Uint8Array>,
  call: IncomingCall,
  send: (message: Uint8Array) => Promise<void>,
) => Promise<Failure | undefined>

export interface ServedDuplex {
  readonly serve: DuplexMethod
  /** The most bytes of one request. */
  readonly messageBytes: number
}

/** By full name. Only gRPC has such methods. */
export type DuplexTable = ReadonlyMap<string, ServedDuplex>

export type Failure = Extract<Outcome, { readonly ok: false }>

/** Checks a call outside the method table, such as reflection. Resolves with the failure to answer; never rejects. */
export type CheckCall = (
  method: string,
  request: unknown,
  signal: AbortSignal,
) => Promise<Failure | undefined>

export interface ServedMethod {
  readonly serve: Method
  readonly share: Share
  /** The number of the request's last field, of type bytes, which may stay in a file. */
  readonly dataField?: number | undefined
}

/** By full name, such as `grpc.AgentService/CreateContainer`. */
export type MethodTable = ReadonlyMap<string, ServedMethod>

/** Full names, such as `grpc.AgentService`. */
export function serviceNames(methods: MethodTable): ReadonlySet<string> {
  return new Set([...methods.keys()].map((name) => name.slice(0, name.lastIndexOf('/'))))
}
