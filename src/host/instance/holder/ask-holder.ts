import { withTimeout } from '../../../base/abort.ts'
import { AgentError, errnoOf } from '../../../base/errors.ts'
import type { Clock } from '../../../os/clock.ts'
import type { InstanceLimits } from '../limits.ts'
import type { Holder } from './holder.ts'

interface AskContext {
  readonly clock: Pick<Clock, 'sleep'>
  readonly limits: Pick<InstanceLimits, 'holderMs' | 'endMs'>
}

/** Waits for the holder's answer, which a holder that is stopped does not give. */
export function answer<T>({ clock, limits }: AskContext, work: Promise<T>, ms = limits.holderMs): Promise<T> {
  const late = () => new AgentError('UNAVAILABLE', `the holder did not answer within ${ms} ms`)
  return withTimeout(clock, ms, work, late)
}

/** Ends a holder and all that it has started; one that does not answer is killed. */
export async function endRunning(context: AskContext, holder: Holder): Promise<void> {
  const { endMs } = context.limits
  try {
    await answer(context, holder.end(), endMs)
    await answer(context, holder.ended, endMs)
  } catch {
    // A holder that has just ended tells so first: its pid may soon be another process's.
    if (await hasEnded(context, holder)) return
    if (holder.pid !== undefined) killIfAlive(holder.pid)
    await answer(context, holder.ended)
  }
}

/** Several times what a holder's client needs to learn of its end. */
const LOOK_MS = 100

async function hasEnded(context: AskContext, holder: Holder): Promise<boolean> {
  return await answer(context, holder.ended, LOOK_MS).then(
    () => true,
    () => false,
  )
}

function killIfAlive(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL')
  } catch (error) {
    if (errnoOf(error) !== 'ESRCH') throw error
  }
}
