import type { StatusCodeName } from '../base/errors.ts'
import type { Share } from './limits.ts'

/** The part of a call that its framing knows. */
export interface IncomingCall {
  /** Time left when the call arrived, in milliseconds; undefined means no limit. At 0 the call does not begin. */
  readonly timeoutMs: number | undefined
  /**
   * Aborted when the client hangs up or cancels, or the connection breaks. Its reason has no meaning: the bundle of gRPC has
   * error classes of its own.
   */
  readonly hangup: AbortSignal
  /** Names the connection in logs, such as `vsock 2:1234` or `unix`. */
  readonly peer: string
  /** `ttrpc` or `grpc`. */
  readonly framing: 'ttrpc' | 'grpc'
  /** The broker's number of the request (docs/broker.md); undefined with gRPC. */
  readonly number: bigint | undefined
  /** How old the request was when it arrived here, in milliseconds: more than 0 only when the broker had it before. */
  readonly ageMs: number
  /** Whether the previous agent had the request. */
  readonly sentBefore?: boolean
  /** The trace context that came with it (traceparent.ts), which is not checked. */
  readonly traceparent?: string | undefined
}

/** Bytes of a file in memory. A framing whose peer can read the file need not have them in this process. */
export interface StoredBytes {
  readonly length: number
  /** Where they are until their delivery is told, if the file is still open. */
  readonly place: { readonly fd: number; readonly offset: number } | undefined
  read(): Uint8Array
}

/** An encoded message: `payload`, followed by `bulk` if there is one, which is kept apart so that it is not copied. */
export interface Encoded {
  readonly payload: Uint8Array
  readonly bulk?: Uint8Array | StoredBytes | undefined
}

/** The bytes themselves. */
export function bytesOf(bulk: Uint8Array | StoredBytes): Uint8Array {
  return bulk instanceof Uint8Array ? bulk : bulk.read()
}

/** What a framing sends back. */
export type Outcome =
  | ({ readonly ok: true; readonly delivered?: (written: boolean) => void } & Encoded)
  | { readonly ok: false; readonly code: StatusCodeName; readonly message: string }

/**
 * One unary method below the framings: encoded request in, outcome out; never rejects. The framing calls
 * `delivered(true)` once the answer was handed whole to a live connection, `delivered(false)` when it never will be.
 */
export type Method = (payload: Uint8Array, call: IncomingCall) => Promise<Outcome>

/**
 * One method below the framings that answers with any number of messages. `send` resolves once a message was sent or never
 * will be. Ends with the call, or when `hangup` fires; resolves with the failure to answer, and never rejects.
 */
export type StreamMethod = (
  payload: Uint8Array,
  call: IncomingCall,
  send: (message: Uint8Array) => Promise<void>,
) => Promise<Failure | undefined>

/** Such methods by their full names. Only gRPC has them. */
export type StreamTable = ReadonlyMap<string, StreamMethod>

/** The outcome of a call that failed. */
export type Failure = Extract<Outcome, { readonly ok: false }>

/**
 * Checks a call that a framing serves beside the method table, such as server reflection. Resolves with the failure to
 * answer, or undefined when the call may be served; never rejects.
 */
export type CheckCall = (
  method: string,
  request: unknown,
  signal: AbortSignal,
) => Promise<Failure | undefined>

/** A method, and what the framings must know of it before they call it. */
export interface ServedMethod {
  readonly serve: Method
  readonly share: Share
}

/** The methods by their full names, such as `grpc.AgentService/CreateContainer`. */
export type MethodTable = ReadonlyMap<string, ServedMethod>

/** Full names of the services that a table has methods of, such as `grpc.AgentService`. */
export function serviceNames(methods: MethodTable): ReadonlySet<string> {
  return new Set([...methods.keys()].map((name) => name.slice(0, name.lastIndexOf('/'))))
}
