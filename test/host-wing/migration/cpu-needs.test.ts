import { expect, it } from 'vitest'
import { MovePlan } from '../../../src/gen/microvm/instance/v1/handover.ts'
import { newDocument } from '../../../src/host/instance/documents/document-record.ts'
import { namedCpu } from '../../../src/host/migration/move/ask-target.ts'
import { checkPlan } from '../../../src/host/migration/move/check-arrival.ts'
import { HANDOVER_VERSION } from '../../../src/host/migration/move/move-host.ts'
import { expanded } from '../../support/host-wing/expansion.ts'

const FACTS = { qemu: 'QEMU 7.2.22', acceleration: 'kvm', cpu: 'ours' }

function recordOf(cpu: object) {
  const machine = expanded({ cpu })
  const document = newDocument('{}', 'fixed', false, machine)
  return { document: { ...document, current: JSON.stringify(machine), backends: '{}' } }
}

it('a machine of a document needs the CPU model that it names, and others need that of their host', () => {
  expect(namedCpu(recordOf({ model: 'Westmere' }))).toBe('Westmere')
  expect(namedCpu({ document: undefined })).toBeUndefined()
  // Its host may lack what it has turned off.
  expect(namedCpu(recordOf({ model: 'Westmere', features: { aes: false } }))).toBe('')
})

it('a plan with a named CPU model is for any processor, and another plan for an equal one', () => {
  const plan = (cpu: string) => MovePlan.fromPartial({ ...FACTS, version: HANDOVER_VERSION, cpu })
  expect(() => checkPlan(plan(''), FACTS)).not.toThrow()
  expect(() => checkPlan(plan('theirs'), FACTS)).toThrow('saved with cpu theirs, this host has ours')
})
