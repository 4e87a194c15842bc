import { neverAborted } from '../../base/abort.ts'
import type { CallLimits } from '../../rpc/call-limits.ts'
import { type IncomingCall, OUTPUT_READ } from '../../rpc/method.ts'
import type { Call } from '../../state/request.ts'
import type { Rpc } from './rpc.ts'

/** A class, because an object literal with a getter costs more than the signal that it saves. */
export class ServedCall implements Call {
  readonly number: bigint
  readonly sentBefore: boolean | undefined
  readonly peer: string
  readonly data: IncomingCall['data']
  readonly wasLost: IncomingCall['wasLost']
  readonly outputRead: string | undefined
  readonly ageMs: Call['ageMs']
  readonly takes: Call['takes']
  readonly beforeEffect: Call['beforeEffect']
  readonly #limits: CallLimits | undefined

  constructor(
    incoming: IncomingCall,
    rpc: Pick<Rpc<never, unknown>, 'onHangup' | 'readsOutput'>,
    limits: CallLimits,
    acts: Pick<Call, 'ageMs' | 'beforeEffect' | 'takes'>,
  ) {
    this.number = incoming.number ?? 0n
    this.sentBefore = incoming.sentBefore
    this.peer = incoming.peer
    this.data = incoming.data
    this.wasLost = incoming.wasLost
    this.outputRead = rpc.readsOutput === true ? incoming.metadata?.(OUTPUT_READ) : undefined
    this.ageMs = acts.ageMs
    this.takes = acts.takes
    this.beforeEffect = acts.beforeEffect
    this.#limits = rpc.onHangup === 'cancel' ? limits : undefined
  }

  get signal(): AbortSignal {
    return this.#limits === undefined ? neverAborted : this.#limits.signal
  }
}
