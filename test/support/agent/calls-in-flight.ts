import { CallsInFlight } from '../../../src/agent/service/calls-in-flight.ts'
import { silentLogger } from '../../../src/base/log.ts'

export function silentCalls(nowMs = () => 0): CallsInFlight {
  return new CallsInFlight({ log: silentLogger(), nowMs, startTimer: () => () => {} })
}
