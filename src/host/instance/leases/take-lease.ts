import { setTimeout as delay } from 'node:timers/promises'
import { messageOf } from '../../../base/errors.ts'
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
 * and its network. Rejects with the last failure.
 */
export async function takeLease(instance: MachineInstance, { closing, settings }: Bounds): Promise<void> {
  const { context, key, record } = instance
  if (!isFull(record.properties?.lease)) return
  const signal = AbortSignal.any([instance.ending, closing])
  const planned = await instance.planned({}, 'incoming')
  const steps = planned.filter(({ step }) => STEPS_OF_LEASE.includes(step))
  for (const until = performance.now() + settings.lateMs; ; ) {
    let failure: unknown
    try {
      return await makeSteps(context, steps, record)
    } catch (error) {
      failure = error
    }
    if (performance.now() > until) throw failure
    context.log.warn('lease and disks not taken', { instance: key, error: messageOf(failure) })
    await delay(settings.retryMs, undefined, { signal }).catch(() => {
      throw failure
    })
  }
}
