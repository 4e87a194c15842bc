import type { Logger } from '../../base/log.ts'
import type { ContainerNames } from '../../handlers/container/container-names.ts'
import type { Totals } from '../../rpc/limits.ts'
import type { IncomingCall, Outcome } from '../../rpc/method.ts'
import type { RequestJournal } from '../../state/request-journal.ts'
import type { CallsInFlight, OpenCall } from './calls-in-flight.ts'
import type { KeptOutcomes } from './kept-outcomes.ts'
import type { Checks, Gate } from './rpc.ts'

export interface WrapperContext {
  readonly log: Logger
  readonly gate: Gate
  /** Throws the error of a call that must not begin now. */
  readonly admit?: (call: OpenCall) => void
  readonly policy: Checks
  /** The limits of all calls together: decoded fields (elements) of requests, and calls at work. */
  readonly totals: Totals
  readonly calls: CallsInFlight
  readonly requests: RequestJournal
  readonly names: Pick<ContainerNames, 'bringUpToDate'>
  readonly outcomes: KeptOutcomes
  /** Of a monotonic clock. */
  readonly nowMs: () => number
}

/** `begins` is called right before the work. */
export type Serve = (
  payload: Uint8Array,
  incoming: IncomingCall,
  open: OpenCall,
  begins?: () => void,
) => Promise<Outcome>
