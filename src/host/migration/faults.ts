import { AgentError } from '../../base/errors.ts'

export type Operation = 'export' | 'import'

/** Called before each step of an operation. */
export type AtStep = (operation: Operation, step: string) => Promise<void>

/**
 * What the variable MICROVM_TEST_FAULTS asks for, in tests: `migration-failure:export:memory:2` fails the step twice,
 * `migration-death:export:memory` kills this process before the step.
 */
export function faultsOf(text: string | undefined): AtStep {
  const faults = (text ?? '').split(',').map((fault) => {
    const [kind, operation, step, times = '1'] = fault.split(':')
    return { kind, operation, step, left: Number(times) }
  })
  return async (operation, step) => {
    const fault = faults.find((each) => each.operation === operation && each.step === step && each.left > 0)
    if (fault === undefined) return
    fault.left -= 1
    if (fault.kind === 'migration-death') process.kill(process.pid, 'SIGKILL')
    if (fault.kind === 'migration-failure')
      throw new AgentError('UNAVAILABLE', `migration-failure: asked for in the ${operation} at ${step}`)
  }
}
