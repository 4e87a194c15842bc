import { AgentError, messageOf } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import type { NetworkRecord } from '../../handlers/network/network-record.ts'
import type { Os } from '../../os/os.ts'
import type { AgentConfig } from '../config/settings.ts'

/** What boot steps work with. */
export interface BootContext {
  readonly os: Pick<Os, 'clock' | 'files' | 'mounts' | 'network' | 'system' | 'tools' | 'uevents'>
  readonly config: AgentConfig
  readonly log: Logger
  /** What was set in the guest's network, and by whom. */
  readonly networkRecord: NetworkRecord
  /** The environment of this process; a step may set a variable. */
  readonly environment: Record<string, string | undefined>
}

/** `done`: the step changed something; `already`: it found everything as it should be. */
export type StepOutcome = 'done' | 'already'

/**
 * One thing to do at boot. It looks before it acts: after a restart of the agent everything is checked again, and
 * only what is missing is done.
 */
export interface BootStep {
  readonly name: string
  readonly run: (context: BootContext) => Promise<StepOutcome>
}

/** `done` when any part did something. */
export function outcomeOf(parts: readonly StepOutcome[]): StepOutcome {
  return parts.includes('done') ? 'done' : 'already'
}

/** Runs the steps one after the other, each with a log line; throws INTERNAL naming the step that failed. */
export async function runSteps(context: BootContext, steps: readonly BootStep[]): Promise<void> {
  for (const { name, run } of steps) {
    const startedMs = context.os.clock.monotonicMs()
    try {
      const outcome = await run(context)
      const ms = context.os.clock.monotonicMs() - startedMs
      context.log.info('boot step', { step: name, outcome, ms: ms.toFixed(1) })
    } catch (error) {
      throw new AgentError('INTERNAL', `boot step ${name}: ${messageOf(error)}`, { cause: error })
    }
  }
}
