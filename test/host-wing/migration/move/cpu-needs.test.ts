import { expect, it } from 'vitest'
import { Host, Vm } from '../../../../src/gen/microvm/controller/v1/controller.ts'
import { MovePlan } from '../../../../src/gen/microvm/instance/v1/handover.ts'
import { Specification } from '../../../../src/gen/microvm/instance/v1/instance.ts'
import { chooseHost } from '../../../../src/host/controller/target/choose-host.ts'
import { newDocument } from '../../../../src/host/instance/documents/document-record.ts'
import { namedCpu } from '../../../../src/host/migration/move/ask-target.ts'
import { checkPlan, checkQemu } from '../../../../src/host/migration/move/check-arrival.ts'
import { HANDOVER_VERSION } from '../../../../src/host/migration/move/move-host.ts'
import { placeNeeds } from '../../../../src/host/migration/move/place-needs.ts'
import { expanded } from '../../../support/host-wing/expansion.ts'

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

const DEBIAN = 'QEMU 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18)'

it.each([
  ['pc-q35-7.2', DEBIAN, undefined],
  ['pc-q35-7.2', 'QEMU 7.2.22 (Debian 1:7.2+dfsg-7+deb12u19)', undefined],
  ['pc-q35-7.2', 'QEMU 7.2.23', undefined],
  ['pc-i440fx-7.2', 'QEMU 10.0.2', undefined],
  ['pc-q35-7.2', 'QEMU 7.2.9', 'has QEMU 7.2.9, want 7.2.22 or later'],
  ['pc-q35-7.2', 'QEMU 6.2', 'has QEMU 6.2, want 7.2.22 or later'],
  ['microvm', 'QEMU 7.2.22', undefined],
  ['microvm', 'QEMU 8.0.0', 'has QEMU 8.0.0, want 7.2.22 for machine microvm, which has no versions'],
])('controller and target are of one mind about %s on %s', (machine, qemu, misfit) => {
  const specification = Specification.fromPartial({ board: { machine } })
  const needs = placeNeeds(specification, { qemu: DEBIAN })
  const vm = Vm.fromPartial({ authoritative: { podName: 'a/i' }, settings: { needs, specification } })
  const host = (id: string, version: string) => Host.fromPartial({ id, qemuVersion: version.slice(5) })
  const choice = chooseHost(vm, [host('a', DEBIAN), host('b', qemu)], 'b')
  expect('reason' in choice ? choice.reason : undefined).toBe(misfit && `host b: ${misfit}`)
  // The source says the whole text to the target.
  const arrives = () => checkQemu({ qemu: DEBIAN }, { specification }, { qemu })
  if (misfit === undefined) expect(arrives).not.toThrow()
  else expect(arrives).toThrow(`handover: this host ${misfit}`)
})
