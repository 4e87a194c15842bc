import { neverAborted } from '../../../src/base/abort.ts'
import { type Call, NO_CALLER } from '../../../src/state/request.ts'

/** A call without a caller; number 0 stands for a call that is never repeated. */
export function callOf(signal = neverAborted, number = 0n): Call {
  return { ...NO_CALLER, signal, number }
}

export function numbered(number: bigint): Call {
  return callOf(neverAborted, number)
}
