import type { StatusCodeName } from '../../base/errors.ts'
import type { LogFields } from '../../base/log.ts'
import type { StepName } from '../../base/step.ts'
import type { IncomingCall } from '../../rpc/method.ts'

export interface Tracer {
  /** Undefined for a call whose caller does not want it traced. */
  begin(rpc: string, incoming: IncomingCall): CallTrace | undefined
}

export interface CallTrace {
  /** The returned function ends the step, with the error of a failed one. */
  step(name: StepName, detail: string): (error?: unknown) => void
  /** `code` is undefined for a successful call. */
  end(ids: LogFields, code?: StatusCodeName): void
}

export interface Tracing {
  readonly tracer: Tracer
  /** The number of spans that were not sent: too many waited, or the receiver rejected them. */
  dropped(): number
  /** Sends the waiting spans within a short time limit. Never rejects. */
  stop(): Promise<void>
}
