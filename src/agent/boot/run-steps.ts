import { AgentError, messageOf } from '../../base/errors.ts'
import type { BootContext, BootStep } from './step.ts'

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
