import { CallsInFlight } from '../../../src/agent/service/calls-in-flight.ts'
import { silentLogger } from '../../../src/base/log.ts'

export function silentCalls(): CallsInFlight {
  return new CallsInFlight({ log: silentLogger(), nowMs: () => 0, startTimer: () => () => {} })
}
