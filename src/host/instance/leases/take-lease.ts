import { setTimeout as delay } from 'node:timers/promises'
import { AgentError, messageOf } from '../../../base/errors.ts'
import type { MachineInstance } from '../instance.ts'
import { makeSteps } from '../machine/steps.ts'
import { isFull } from './check-lease.ts'
import { STEPS_OF_LEASE } from './lease-steps.ts'

interface Bounds {
  /** Fires when this process does no more for the machine. */
  readonly closing: AbortSignal
  /** How long it is tried, and between two tries. */
  readonly settings: { readonly lateMs: number; readonly retryMs: number }
}

/**
 * A machine that has come from another host, and is to run here, gets its lease, and what only the one that has that may have: its disks
 * and its network. Rejects with the last failure, and once its QEMU has ended.
 */
export async function takeLease(instance: MachineInstance, { closing, settings }: Bounds): Promise<void> {
  const { context, key, record } = instance
  if (!isFull(record.properties?.lease)) return
  // A try that waits for another host ends by then, too.
  const late = AbortSignal.timeout(settings.lateMs)
  const ended = new AbortController()
  void context.machine?.qmp.ended.then((reason) => ended.abort(reason))
  const ending = AbortSignal.any([instance.ending, closing, late, ended.signal])
  const planned = await instance.planned({}, 'incoming')
  const steps = planned.filter(({ step }) => STEPS_OF_LEASE.includes(step))
  for (let failure: unknown; ; ) {
    try {
      return await makeSteps({ ...context, ending: () => ending }, steps, record)
    } catch (error) {
      // What has cut a try short tells less than how the one before has failed.
      failure = ending.aborted ? (failure ?? error) : error
    }
    if (!ending.aborted) {
      context.log.warn('lease and disks not taken', { instance: key, error: messageOf(failure) })
      await delay(settings.retryMs, undefined, { signal: ending }).catch(() => {})
    }
    if (late.aborted) throw tooLate(settings.lateMs, failure)
    if (ending.aborted) throw failure
  }
}

function tooLate(ms: number, cause: unknown): AgentError {
  const text = `lease and disks: not taken within ${ms} ms: ${messageOf(cause)}`
  return new AgentError('UNAVAILABLE', text, { cause })
}
