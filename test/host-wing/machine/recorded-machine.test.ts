import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { readMachine } from '../../../src/host/machine/document/document.ts'
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

describe('a machine of a later version', () => {
  it('is refused', () => {
    const machine = { ...JSON.parse(fixture('recorded-0.1.0.json')), apiVersion: 'microvm/v2' }
    expect(() => readMachine(machine)).toThrow('apiVersion: "microvm/v2", did you mean "microvm/v1"?')
  })
})
