import { AgentError } from '../../../base/errors.ts'
import type { InstanceRecord, StepRecord } from '../../../gen/microvm/instance/v1/records.ts'
import type { PlugParts } from '../devices/plug-parts.ts'
import { notFound } from '../instances.ts'

/** From the end of a handover on, in the words of the steps `move` and `incoming`: only the controller knows who runs the machine. */
export const HANDED = 'handed'
const PHASES: Readonly<Record<string, number>> = { move: 6, incoming: 2 }

/** Whether another host may run the machine. */
export function isUndecided(steps: readonly StepRecord[]): boolean {
  return steps.some(({ step, words }) => words[PHASES[step] ?? -1] === HANDED)
}

/**
 * The words of a step that was lost, as for a registry that was made anew: the controller alone can tell who runs the machine,
 * which is `state` here.
 */
export const LOST = {
  move: (state: 'running' | 'paused') => ['', '', '', state, '', '', HANDED],
  incoming: ['', '', HANDED],
} as const

interface Moving {
  readonly key: string
  readonly recorded: { readonly steps: readonly StepRecord[] }
  readonly plugParts: Pick<PlugParts, 'moves'>
}

/** Whether the machine is on its way here, or has been handed over: what a controller says of its run is the move's matter. */
export function isOnItsWay({ recorded }: OnItsWay): boolean {
  const { record, steps } = recorded
  return (
    record.awaiting !== undefined || steps.some(({ step, words }) => (words[PHASES[step] ?? -1] ?? '') !== '')
  )
}

interface OnItsWay {
  readonly recorded: Moving['recorded'] & { readonly record: Pick<InstanceRecord, 'awaiting'> }
}

/** Throws FAILED_PRECONDITION while another host may run the machine. */
export function refuseUndecided({ key, recorded }: Omit<Moving, 'plugParts'>): void {
  if (!isUndecided(recorded.steps)) return
  throw new AgentError(
    'FAILED_PRECONDITION',
    `instance ${key}: another host may run its machine, want an answer of the controller before`,
  )
}

/** How long a call waits for the controllers' answer. */
const ASK_MS = 30_000

/**
 * Asks the controller where another host may run the machine. `kill` and `remove` end that. Rejects with UNAVAILABLE when no
 * controller answers in time. To be called in a change.
 */
export async function settleUndecided(instance: Moving, askMs = ASK_MS): Promise<void> {
  const { key, plugParts, recorded } = instance
  if (!isUndecided(recorded.steps)) return
  const late = AbortSignal.timeout(askMs)
  const isGone = await plugParts.moves?.settle(instance, late).catch((error) => {
    if (!late.aborted) throw error
    const text = `instance ${key}: another host may run its machine, and no controller has answered in ${askMs} ms`
    throw new AgentError('UNAVAILABLE', text, { cause: error })
  })
  if (isGone) throw notFound(key)
  refuseUndecided(instance)
}
