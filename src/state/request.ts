import { neverAborted } from '../base/abort.ts'
import { messageOf } from '../base/errors.ts'
import type { LogFields, Logger } from '../base/log.ts'

/** What an answer takes away, until it is known what became of the answer. One of the two is called, once. */
export interface Taken {
  /** The answer was written whole to a live connection: what it takes is gone. */
  delivered(): void
  /** The answer never will be written: what it would have taken stays. */
  dropped(): void
}

/** Tells what an answer takes what became of the answer. When one of them fails, that is logged, and the others are told. */
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

/** What is done whatever becomes of the answer. */
export function either(act: () => void): Taken {
  return { delivered: act, dropped: act }
}

/** What keeps what requests have taken, for the agents after this one too. */
export interface TakenByRequests {
  /** By the numbers of the requests. */
  readonly taken: readonly (readonly [number: bigint, taken: Taken])[]
}

/** One call, as the function that serves it sees it. */
export interface Call {
  /**
   * Aborted with an `AgentError` when the call's deadline passes or its client hangs up. It never fires for an RPC
   * whose `onHangup` is `finish`.
   */
  readonly signal: AbortSignal
  /**
   * The broker's number of the request (docs/broker.md): a restarted agent that gets the request again gets it with the
   * same number. 0 for a request that is not sent again: with gRPC.
   */
  readonly number: bigint
  /** Milliseconds since the whole request arrived in the guest, also at the previous agent. */
  ageMs(): number
  /** Whether the previous agent had the request, and died before it answered. */
  readonly sentBefore?: boolean | undefined
  /** Registers what the answer takes away, such as an exit status. It counts as dropped when the call fails. */
  takes(taken: Taken): void
  /**
   * Of an `at-most-once` call: to be called right before what must not happen twice. When the agent dies after this, the
   * call is answered as it is sent again; when it dies before, the call is carried out then.
   */
  beforeEffect(): void
}

/** The call of the agent's own work, which has no caller and is not sent again. */
export const NO_CALLER: Call = {
  signal: neverAborted,
  number: 0n,
  ageMs: () => 0,
  takes: () => {},
  beforeEffect: () => {},
}
