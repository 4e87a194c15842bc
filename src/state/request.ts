import { neverAborted } from '../base/abort.ts'
import { messageOf } from '../base/errors.ts'
import type { LogFields, Logger } from '../base/log.ts'
import type { StoredBytes } from '../base/stored-bytes.ts'

/** What an answer takes away, until the outcome of the answer is known. One of the two is called, once. */
export interface Taken {
  /** The whole answer was written to a live connection: remove the value. */
  delivered(): void
  /** The answer will never be written: keep the value. */
  dropped(): void
}

/** Delivers or drops each value of an answer. Logs one that fails, and goes on. */
export function tell(all: readonly Taken[], written: boolean, log: Logger, fields: LogFields): void {
  for (const taken of all) {
    try {
      if (written) taken.delivered()
      else taken.dropped()
    } catch (error) {
      log.error('delivery not recorded', { ...fields, written, error: messageOf(error) })
    }
  }
}

/** Acts on both outcomes. */
export function either(act: () => void): Taken {
  return { delivered: act, dropped: act }
}

/** A part of the agent that records taken values itself, such as the policy, for the next agent to settle. */
export interface TakenByRequests {
  readonly taken: readonly (readonly [number: bigint, taken: Taken])[]
}

/** One call, as its handler sees it. */
export interface Call {
  /**
   * Aborted with an `AgentError` at the deadline or when the client hangs up; never for an RPC whose `onHangup` is
   * `finish`. Made at its first use, so a copy of a call has to name it.
   */
  readonly signal: AbortSignal
  /**
   * The number of the request, also when it is sent again: the broker's (docs/broker.md), or that of a call with an
   * idempotency key. 0 for other calls by gRPC, which are never sent again.
   */
  readonly number: bigint
  /** Milliseconds since the whole request arrived in the guest, perhaps at the previous agent. */
  ageMs(): number
  /** Whether an earlier agent had the request, and died without an answer. */
  readonly sentBefore?: boolean | undefined
  /** Names the connection, such as `vsock 2:1234`. */
  readonly peer?: string | undefined
  /** The policy is asked about a call that has happened: its changes of the policy's state are not to be repeated. */
  readonly hasHappened?: boolean
  /** Whether the connection was lost with its device, once `signal` has fired. */
  readonly wasLost?: (() => boolean) | undefined
  /** Names a read of output, which its caller may repeat. */
  readonly outputRead?: string | undefined
  /** The request's data, if that is in a file and not in the request. */
  readonly data?: StoredBytes | undefined
  /** Registers a value that the answer takes away, such as an exit status. A failed call drops it. */
  takes(taken: Taken): void
  /**
   * An `at-most-once` RPC calls this right before the effect that must not happen twice. If the agent dies after it, the
   * repeated call is only answered.
   */
  beforeEffect(): void
}

/** For work that seldom waits, so that most calls make no signal. */
export type Waiting = Pick<Call, 'signal'>

/** The agent's own work, which no caller sends again. */
export const NO_CALLER: Call = {
  signal: neverAborted,
  number: 0n,
  ageMs: () => 0,
  takes: () => {},
  beforeEffect: () => {},
}
