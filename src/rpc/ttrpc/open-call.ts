import type { LateAbort } from '../../base/abort.ts'
import type { IncomingCall } from '../method.ts'
import { TRACEPARENT } from '../traceparent.ts'
import type { Arrival } from './broker-framing.ts'
import { type TtrpcRequest, timeoutMsOf } from './messages.ts'

export interface Asker {
  readonly streamId: number
  readonly arrival: Arrival
}

export interface OpenCall extends Asker {
  readonly abort: LateAbort
  readonly requestBytes: number
}

/** A class, because an object literal with a getter costs more than the signal that it saves. */
export class TtrpcCall implements IncomingCall {
  readonly timeoutMs: number | undefined
  readonly peer: string
  readonly framing = 'ttrpc'
  readonly number: bigint
  readonly ageMs: number
  readonly sentBefore: boolean
  readonly traceparent: string | undefined
  readonly metadata: IncomingCall['metadata']
  readonly data: IncomingCall['data']
  readonly wasLost: () => boolean
  readonly #abort: LateAbort

  constructor(
    { abort, arrival }: OpenCall,
    { timeoutNano, known }: TtrpcRequest,
    more: Pick<IncomingCall, 'data' | 'peer'> & Pick<TtrpcCall, 'wasLost'>,
  ) {
    const { number, ageMs, sentBefore } = arrival
    const timeoutMs = timeoutMsOf(timeoutNano)
    this.timeoutMs = timeoutMs === undefined ? undefined : Math.max(0, timeoutMs - ageMs)
    this.peer = more.peer
    this.number = number
    this.ageMs = ageMs
    this.sentBefore = sentBefore
    this.traceparent = known?.get(TRACEPARENT)
    this.metadata = known && ((name) => known.get(name))
    this.data = more.data
    this.wasLost = more.wasLost
    this.#abort = abort
  }

  get hangup(): AbortSignal {
    return this.#abort.signal
  }
}
