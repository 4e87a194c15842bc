import { expect, it } from 'vitest'
import { StepRecord } from '../../../../src/gen/microvm/instance/v1/records.ts'
import { otherSteps, providerSteps } from '../../../../src/host/instance/devices/provider-steps.ts'
import type { MachineInstance } from '../../../../src/host/instance/instance.ts'

const steps = ['volume', 'daemon'].flatMap((step) =>
  ['disk', 'other'].map((key) => StepRecord.fromPartial({ step, words: [key, 'name', '/socket'] })),
)
// Nothing else of the instance is read.
const instance = { recorded: { steps } } as unknown as MachineInstance
const kinds = (found: readonly StepRecord[]) => found.map(({ step, words: [key] }) => `${step} ${key}`)

it('what serves a disk to its machine ends with the device, and not for another file of it', () => {
  expect(kinds(providerSteps(instance, ['disk']))).toEqual(['volume disk', 'daemon disk'])
  const providers = { daemons: [], filters: [], taps: [], secrets: new Map() }
  expect(kinds(otherSteps(instance, 'disk', providers))).toEqual(['daemon disk'])
})
