import type { Call, FailedCall } from '../../gen/microvm/agent/v1/introspection.ts'
import type { CallsInFlight } from './calls-in-flight.ts'
import type { Recovery } from './rpc.ts'

/** Oldest first. */
export function listCalls(
  calls: Pick<CallsInFlight, 'list'>,
  nowMs: number,
  recoveryOf: (method: string) => Recovery | undefined,
): Call[] {
  return calls.list().map(({ rpc, incoming, ids, startedMs, hasCaller, steps }) => {
    const step = steps.at(-1)
    return {
      method: rpc,
      ageMs: milliseconds(incoming.ageMs + nowMs - startedMs),
      step: step === undefined ? '' : `${step.name} ${step.detail}`.trim(),
      stepAgeMs: milliseconds(step === undefined ? 0 : nowMs - step.sinceMs),
      connection: incoming.peer,
      framing: incoming.framing,
      recovery: recoveryOf(rpc) ?? 'read',
      containerId: String(ids.containerId ?? ''),
      execId: String(ids.execId ?? ''),
      callerLeft: !hasCaller,
    }
  })
}

/** Oldest first. */
export function listFailedCalls(calls: Pick<CallsInFlight, 'failed'>, nowMs: number): FailedCall[] {
  return calls.failed().map(({ rpc, ids, code, error, callerFault, atMs }) => ({
    method: rpc,
    code,
    error,
    callerFault,
    containerId: String(ids.containerId ?? ''),
    execId: String(ids.execId ?? ''),
    ageMs: milliseconds(nowMs - atMs),
  }))
}

function milliseconds(ms: number): bigint {
  return BigInt(Math.max(0, Math.round(ms)))
}
