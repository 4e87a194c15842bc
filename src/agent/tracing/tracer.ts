import type { StatusCodeName } from '../../base/errors.ts'
import type { LogFields } from '../../base/log.ts'
import type { StepName } from '../../base/step.ts'
import type { IncomingCall } from '../../rpc/method.ts'

/** Makes spans of calls. */
export interface Tracer {
  /** Undefined for a call whose caller does not want it traced. */
  begin(rpc: string, incoming: IncomingCall): CallTrace | undefined
}

/** The spans of one call. */
export interface CallTrace {
  /** A step begins. The function that it returns is called at the end, with the error of a failed step. */
  step(name: StepName, detail: string): (error?: unknown) => void
  /** The call is answered, with this code if it has failed. */
  end(ids: LogFields, code?: StatusCodeName): void
}

/** What goes on while tracing is on. */
export interface Tracing {
  readonly tracer: Tracer
  /** Spans that were not sent, because too many wait or the other side does not take them. */
  dropped(): number
  /** Sends what waits, for a moment at most. Never rejects. */
  stop(): Promise<void>
}
