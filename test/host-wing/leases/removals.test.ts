import { expect, it } from 'vitest'
import { AgentError } from '../../../src/base/errors.ts'
import { silentLogger } from '../../../src/base/log.ts'
import { HypervisorID } from '../../../src/gen/vm.ts'
import { Removals } from '../../../src/host/instance/leases/removals.ts'
import { memoryRegistry } from '../../../src/host/instance/registry/memory-registry.ts'

function opened(answer: (us: HypervisorID) => Promise<void>) {
  const registry = memoryRegistry()
  const removals = new Removals({ controller: { removeVm: answer }, registry, log: silentLogger() })
  const rows = async () => [...(await registry.load('settings')).keys()]
  return { removals, rows }
}

const run = (vmName: string, runId = 1n) =>
  HypervisorID.fromPartial({ vmName, namespace: 'default', podName: `a/${vmName}`, runId })

it('a removal is told again after each error but a refusal', async () => {
  const codes = ['UNAVAILABLE', 'RESOURCE_EXHAUSTED', 'ABORTED', 'INTERNAL', 'DEADLINE_EXCEEDED'] as const
  const refusals = ['FAILED_PRECONDITION', 'NOT_FOUND', 'INVALID_ARGUMENT', 'PERMISSION_DENIED'] as const
  const asked: string[] = []
  const { removals, rows } = opened(async ({ vmName }) => {
    const isAgain = asked.includes(vmName)
    asked.push(vmName)
    const code = [...codes, ...refusals].find((each) => each === vmName)
    if (code !== undefined && !isAgain) throw new AgentError(code, 'no')
  })
  await Promise.all([...codes, ...refusals].map((code) => removals.tell(run(code))))
  for (const code of codes) expect(asked.filter((each) => each === code)).toHaveLength(2)
  for (const code of refusals) expect(asked.filter((each) => each === code)).toHaveLength(1)
  expect(await rows()).toEqual([])
})

it('the removal of a later run stays when that of an earlier one has been told', async () => {
  const later = Promise.withResolvers<void>()
  const { removals, rows } = opened(async ({ runId }) => (runId === 1n ? undefined : await later.promise))
  const told = removals.tell(run('web', 2n))
  await removals.tell(run('web'))
  expect(await rows()).toEqual(['removal/default/web/a/web/2'])
  later.resolve()
  await told
  expect(await rows()).toEqual([])
})
