import { Ajv } from 'ajv'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { AgentError } from '../../../src/base/errors.ts'
import { checkHardware } from '../../../src/host/machine/check-hardware.ts'
import { documentSchema, readDocument, readMachine } from '../../../src/host/machine/document/document.ts'
import { expand } from '../../../src/host/machine/expand.ts'
import { FEATURES } from '../../../src/host/machine/features/table.ts'
import type { Machine } from '../../../src/host/machine/machine.ts'
import { withPlugged, withPlugsOf } from '../../../src/host/machine/plugged.ts'
import { documents, wishes } from '../../support/host-wing/any-document.ts'

const DOCUMENTS = 10_000

const PATH = /^AgentError: (?:apiVersion|kind|metadata|spec|document)(?:[.[].*)?: /s
const isInSchema = new Ajv({ strict: false }).compile(documentSchema)

/** The machine with one more disk; undefined where it has no room, or a device of that name. */
function plugged(machine: Machine): Machine | undefined {
  try {
    return withPlugged(machine, { storage: [{ source: 'a' }] }, 'plugged0')
  } catch (error) {
    expect(error).toBeInstanceOf(AgentError)
    return undefined
  }
}

/** What is true of a machine whoever made it, said again in other words than those of the code. */
function expectSound(machine: Machine): void {
  const all = Object.values(machine.devices)
  const places = all.flatMap(({ address: own }) =>
    own?.type === 'pci' ? [`${own.bus}:${own.slot}.${own.function}`] : [],
  )
  expect(new Set(places).size).toBe(places.length)
  const buses = new Set([
    0,
    ...all.flatMap(({ properties: { chassis, chassis_nr } }) => chassis ?? chassis_nr ?? []),
  ])
  for (const { address: own } of all) if (own?.type === 'pci') expect(buses.has(own.bus)).toBe(true)
  if (machine.board.machine === 'microvm') expect(places).toEqual([])
  const used = [
    ...all.flatMap(({ backend }) => backend ?? []),
    ...(machine.firmware.variables ? ['firmware-variables'] : []),
  ]
  expect(used.sort()).toEqual(Object.keys(machine.backends).sort())
  const { count, present, topology } = machine.cpu
  expect(topology.sockets * topology.cores * topology.threads).toBe(count)
  expect(present).toBeLessThanOrEqual(count)
  const macs = all.flatMap(({ properties: { mac } }) => mac ?? [])
  expect(new Set(macs).size).toBe(macs.length)
  expect(JSON.stringify(Object.values(machine.backends))).not.toContain('/etc/passwd')
  const more = plugged(machine)
  // An equal expansion has it at the same place.
  if (more !== undefined) expect(JSON.stringify(withPlugsOf(machine, more))).toBe(JSON.stringify(more))
  expect(readMachine(JSON.parse(JSON.stringify(machine)))).toEqual(machine)
  for (const each of [machine, more]) if (each !== undefined) checkHardware(each)
}

describe('any document', () => {
  it(`of ${DOCUMENTS} is a whole machine, or is refused by the path of a field`, () => {
    let accepted = 0
    const made = new Set<string>()
    fc.assert(
      fc.property(documents, (value) => {
        let machine: Machine
        try {
          machine = expand(readDocument(value), { isPrivileged: false })
        } catch (error) {
          expect(error).toBeInstanceOf(AgentError)
          expect(error).toMatchObject({ code: 'INVALID_ARGUMENT' })
          expect(String(error)).toMatch(PATH)
          return
        }
        accepted += 1
        expect(isInSchema(value)).toBe(true)
        for (const { kind } of Object.values(machine.devices)) made.add(kind)
        expectSound(machine)
      }),
      { numRuns: DOCUMENTS },
    )
    expect(accepted).toBeGreaterThan(DOCUMENTS / 10)
    expect(made.size).toBeGreaterThanOrEqual(20)
  })

  it('is made of every feature of the table', () => {
    expect(Object.keys(wishes).sort()).toEqual(FEATURES.map(({ name: own }) => own).sort())
  })
})
