import { withTimeout } from '../../../base/abort.ts'
import { AgentError, errnoOf, messageOf } from '../../../base/errors.ts'
import type { Logger } from '../../../base/log.ts'
import { SIGKILL } from '../../../base/signals.ts'
import type { Clock } from '../../../os/clock.ts'
import type { InstanceLimits } from '../limits.ts'
import type { Holder } from './holder.ts'

interface AskContext {
  readonly clock: Pick<Clock, 'startTimer'>
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

interface ChildContext extends AskContext {
  readonly holder?: Holder | undefined
  readonly log: Pick<Logger, 'warn'>
}

/** Kills a process of the holder and waits for its end. Without a holder, no process is left. */
export async function endChild(context: ChildContext, name: string): Promise<void> {
  const { holder, limits } = context
  if (holder === undefined) return
  const ended = Promise.withResolvers<void>()
  const stopListening = holder.onExit((child) => child.name === name && ended.resolve())
  try {
    const children = await answer(context, holder.children(), limits.endMs)
    const child = children.find((each) => each.name === name)
    if (child === undefined || child.exit !== undefined) return
    await answer(context, holder.kill(name, SIGKILL), limits.endMs)
    await answer(context, ended.promise, limits.endMs)
  } catch (error) {
    // A holder that answers again carries this out after what it was asked before, such as the start of the process.
    void holder.kill(name, SIGKILL).catch(() => {})
    context.log.warn('process not ended', { name, error: messageOf(error) })
  } finally {
    stopListening()
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

export function killIfAlive(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL')
  } catch (error) {
    if (errnoOf(error) !== 'ESRCH') throw error
  }
}
