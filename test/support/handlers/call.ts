import { neverAborted } from '../../../src/base/abort.ts'
import { type Call, NO_CALLER } from '../../../src/state/request.ts'

/** A call of which nothing is told; without a number it is one that is not sent again. */
export function callOf(signal = neverAborted, number = 0n): Call {
  return { ...NO_CALLER, signal, number }
}

/** The same by its number. */
export function numbered(number: bigint): Call {
  return callOf(neverAborted, number)
}
