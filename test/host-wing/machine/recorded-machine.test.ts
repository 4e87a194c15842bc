import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { readMachine } from '../../../src/host/machine/document/document.ts'
import type { Machine, MachineDevice } from '../../../src/host/machine/machine.ts'
import { asSpec } from '../../../src/host/qemu/machine/as-spec.ts'
import { specKey } from '../../../src/host/spec/spec-key.ts'
import { expanded } from '../../support/host-wing/expansion.ts'
import { recordedArguments } from '../../support/host-wing/recorded-machine.ts'

const fixture = (name: string) =>
  readFileSync(join(import.meta.dirname, '../../fixtures/machines', name), 'utf8')

// A version adds its own, and changes none.
describe.each(['0.1.0'])('a machine that version %s has recorded', (version) => {
  it('is given to QEMU as it was then', () => {
    const machine = readMachine(JSON.parse(fixture(`recorded-${version}.json`)))
    expect(`${recordedArguments(machine).join('\n')}\n`).toBe(fixture(`recorded-${version}.arguments`))
  })
})

describe('a machine that was recorded before cards had addresses', () => {
  const wishes = {
    network: [{ source: 'lan', filter: 'clean-traffic' }],
    metadata: { v4: { ip: '10.0.0.2/24' }, v6: { ip: 'fd00::2/64' } },
  }
  const { backends, ...rest } = expanded(wishes)
  const { filters } = backends['nic0-backend']?.options ?? {}
  const recorded = {
    ...rest,
    backends: {
      ...backends,
      'nic0-backend': { kind: 'network', name: 'lan', options: { filters: String(filters) } },
    },
  }
  const card = (machine: Machine) =>
    asSpec(machine, { 'nic0-backend': { kind: 'tap', interfaceName: 'lan0' } }).devices[specKey('nic0')]

  it('lets the guest send from those of its metadata', () => {
    expect(card(recorded)).toMatchObject({ addresses: ['10.0.0.2', 'fd00::2'] })
    expect(card(recorded)).toEqual(card(expanded(wishes)))
  })

  it('does so after a further card was plugged in, and for none of several cards', () => {
    const { nic0 } = recorded.devices
    if (nic0 === undefined) throw new Error('a card is needed')
    const more = (nic1: MachineDevice) => ({ ...recorded, devices: { ...recorded.devices, nic1 } })
    expect(card(more({ ...nic0, plugged: true }))).toEqual(card(recorded))
    expect(card(more({ ...nic0 }))).toMatchObject({ addresses: [] })
  })
})

describe('a machine of a later version', () => {
  it('is refused', () => {
    const machine = { ...JSON.parse(fixture('recorded-0.1.0.json')), apiVersion: 'microvm/v2' }
    expect(() => readMachine(machine)).toThrow('apiVersion: "microvm/v2", did you mean "microvm/v1"?')
  })
})
