import { AgentError } from '../../../src/base/errors.ts'
import type { AtStep } from '../../../src/host/migration/faults.ts'

const FORM = /^migration-(failure|death):(export|import):([a-z]+)(?::([1-9]\d*))?$/

/**
 * What the variable MICROVM_TEST_FAULTS asks for: `migration-failure:export:memory:2` fails the step twice,
 * `migration-death:export:memory` kills this process before the step. Throws for any other text.
 */
export function faultsOf(text = ''): AtStep {
  const faults = text.split(',').flatMap((fault) => {
    if (fault === '') return []
    const [whole, kind, operation, step, times = '1'] = FORM.exec(fault) ?? []
    if (whole === undefined) throw new Error(`MICROVM_TEST_FAULTS: ${fault}: want ${FORM}`)
    return [{ kind, operation, step, left: Number(times) }]
  })
  return async (operation, step) => {
    const fault = faults.find((each) => each.operation === operation && each.step === step && each.left > 0)
    if (fault === undefined) return
    fault.left -= 1
    if (fault.kind === 'death') process.kill(process.pid, 'SIGKILL')
    throw new AgentError('UNAVAILABLE', `migration-failure: asked for in the ${operation} at ${step}`)
  }
}
