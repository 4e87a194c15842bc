import { neverAborted } from '../../../base/abort.ts'
import { AgentError, messageOf } from '../../../base/errors.ts'
import type { Logger } from '../../../base/log.ts'
import {
  ChangeStateRequest_Change as Change,
  MigrateInstanceRequest,
  type Moved,
  State,
} from '../../../gen/microvm/instance/v1/instance.ts'
import type { Caller, Instances } from '../../instance/instances.ts'
import { MovedAway } from '../../instance/moving/moved-away.ts'

export const CALLER: Caller = { tenant: undefined, signal: neverAborted, inStep: () => {} }

export interface MachineEnd {
  /** Of an end that neither the guest nor a signal has asked for. */
  readonly reason?: string | undefined
  /** Where the machine runs now. */
  readonly moved?: Moved
  /** It has run here, and neither a controller nor the end of its lease has ended it. */
  readonly isOwn?: boolean
}

export interface EndSignals {
  /** How long a move to another host may take, and then the guest after its power button was pressed. */
  readonly graceMs: number
  readonly log: Logger
  /** Has the machine leave this process: for another host where `isMovable`, else by its power button. */
  readonly stop: AbortSignal
  /** Ends the machine at once when it fires. */
  readonly kill: AbortSignal
}

/** The number of the last change. */
export async function lastChange(instances: Instances): Promise<bigint> {
  let last = 0n
  for await (const { changes } of instances.watch({ after: 0n, once: true }, CALLER))
    last = changes.at(-1)?.sequence ?? last
  return last
}

interface Awaiting {
  /** The last change of the run before. */
  readonly after: bigint
  readonly waitMs: number
}

/** For the change of a machine that has begun to come. */
const COMING_MS = 10_000

/**
 * Waits until another host hands the machine over. Resolves with the number of that change, or with why no machine comes; with
 * undefined after `stop`.
 */
export async function awaitMachine(
  instances: Instances,
  key: string,
  { after, kill, stop, waitMs }: Pick<EndSignals, 'kill' | 'stop'> & Awaiting,
): Promise<bigint | string | undefined> {
  const handedOver = async (signal: AbortSignal) => {
    try {
      for await (const { changes } of instances.watch({ after, once: false }, { ...CALLER, signal }))
        for (const { key: of, sequence, state } of changes)
          if (of === key && state === State.CREATING) return sequence
    } catch (error) {
      if (!signal.aborted) throw error
    }
    return undefined
  }
  const come = await handedOver(AbortSignal.any([stop, AbortSignal.timeout(waitMs)]))
  if (come !== undefined) return come
  // It may have begun to come.
  const isAwaiting = await instances.move.giveUpTarget(key, undefined).then(
    () => true,
    (failure) => !isCode(failure, 'PERMISSION_DENIED'),
  )
  const coming = isAwaiting
    ? undefined
    : await handedOver(AbortSignal.any([kill, AbortSignal.timeout(COMING_MS)]))
  return coming ?? (stop.aborted ? undefined : `no machine has come within ${waitMs / 1000} s`)
}

/** What the log says of a guest that has ended by itself. */
const ENDED_BY_GUEST = 'the guest has shut down'

/** Resolves once the machine has stopped after a change, or the instance is gone; `hasRun`: it did before that change. */
export async function endOf(
  instances: Instances,
  key: string,
  { after, hasRun }: { readonly after: bigint; readonly hasRun: boolean },
): Promise<MachineEnd> {
  let wasRun = hasRun
  const sinceMs = BigInt(Date.now())
  for await (const { changes } of instances.watch({ after, once: false }, CALLER))
    for (const { key: of, kind, state } of changes) {
      if (of !== key) continue
      if (kind === 'removed') return await removed(instances, key, { hasRun: wasRun, sinceMs })
      wasRun ||= state === State.RUNNING
      if (state !== State.STOPPED && state !== State.TERMINATED) continue
      const stopped = await instances.get(key, CALLER).catch((error) => {
        if (!isCode(error, 'NOT_FOUND')) throw error
      })
      if (stopped === undefined) return await removed(instances, key, { hasRun: wasRun, sinceMs })
      const reason = stopped.reason === ENDED_BY_GUEST ? undefined : stopped.reason || undefined
      return { reason, isOwn: wasRun && state === State.STOPPED && stopped.state === State.STOPPED }
    }
  return {}
}

async function removed(
  instances: Instances,
  key: string,
  { hasRun, sinceMs }: { readonly hasRun: boolean; readonly sinceMs: bigint },
): Promise<MachineEnd> {
  const error = await instances.get(key, CALLER).catch((failure: unknown) => failure)
  // An earlier machine with this key may have moved, too.
  if (error instanceof MovedAway && error.moved.timeMs >= sinceMs) return { moved: error.moved }
  return hasRun ? { isOwn: true } : { reason: 'the machine has not come: its move has ended' }
}

/** Returns the function that ends the waiting. */
export function endAtSignals(
  instances: Instances,
  key: string,
  { graceMs, isMovable, kill, log, stop }: EndSignals & { readonly isMovable: boolean },
): () => void {
  /** Resolves with whether the machine has ended by that, or is gone. */
  const change = async (to: Change, grace: number, signal = neverAborted) => {
    try {
      await instances.changeState({ key, change: to, graceMs: grace }, { ...CALLER, signal })
    } catch (error) {
      if (isCode(error, 'NOT_FOUND')) return true
      log.warn('machine not stopped', { error: messageOf(error) })
      return false
    }
    return true
  }
  const moveAway = async () => {
    const signal = AbortSignal.any([AbortSignal.timeout(graceMs), kill])
    const request = MigrateInstanceRequest.fromPartial({ key })
    for await (const { step } of instances.move.migrate(request, { ...CALLER, signal }))
      if (step !== '') log.info('move', { step })
  }
  const onStop = async () => {
    try {
      if (isMovable) return await moveAway()
    } catch (error) {
      log.warn('machine not moved', { error: messageOf(error) })
    }
    // A move that is not decided goes on before it.
    if (await change(Change.STOP, graceMs, AbortSignal.timeout(graceMs))) return
    await change(Change.KILL, 0)
  }
  const onKill = () => change(Change.KILL, 0)
  stop.addEventListener('abort', onStop, { once: true })
  kill.addEventListener('abort', onKill, { once: true })
  if (stop.aborted) void onStop()
  if (kill.aborted) void onKill()
  return () => {
    stop.removeEventListener('abort', onStop)
    kill.removeEventListener('abort', onKill)
  }
}

function isCode(error: unknown, code: AgentError['code']): boolean {
  return error instanceof AgentError && error.code === code
}
