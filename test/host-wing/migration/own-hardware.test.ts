import { describe, expect, it } from 'vitest'
import { Specification } from '../../../src/gen/microvm/instance/v1/instance.ts'
import { InstanceRecord } from '../../../src/gen/microvm/instance/v1/records.ts'
import { newDocument, withOwnHardware } from '../../../src/host/instance/documents/document-record.ts'
import { cloneRecord } from '../../../src/host/migration/clone-record.ts'
import { expanded } from '../../support/host-wing/expansion.ts'

it('the cards of clones have addresses that no others are going to have', async () => {
  const specification = Specification.fromPartial({
    devices: Object.fromEntries(
      Array.from({ length: 16 }, (_, index) => [
        `lan${index}`,
        { backend: 'tap', nic: { mac: `52:54:00:00:00:${10 + index}` } },
      ]),
    ),
  })
  const { macs } = await cloneRecord(InstanceRecord.fromPartial({ specification }), {
    ...{ replaced: new Set(), ofTemplate: false },
  })
  const bytes = [...macs.values()].map((mac) => mac.split(':').map((byte) => Number.parseInt(byte, 16)))
  for (const [first = 0] of bytes) expect(first & 3, 'of one card, and given by no maker').toBe(2)
  // 24 random bits would not do for the clones of many hosts on one network.
  for (const at of [1, 2, 3, 4, 5]) expect(new Set(bytes.map((each) => each[at])).size).toBeGreaterThan(1)
})

describe('the document of a clone', () => {
  it('has another UUID and other addresses in each of its machines, and the rest as it was', () => {
    const machine = expanded({
      network: [
        { source: 'lan', name: 'lan' },
        { source: 'wan', name: 'wan' },
      ],
    })
    const text = JSON.stringify(machine)
    const document = { ...newDocument('{}', 'fixed', false, machine), current: text }
    const macs: string[] = []
    const own = withOwnHardware(document, (mac) => `52:54:00:ff:00:0${macs.push(mac) % 2}`)
    const [saved, current] = [own.saved, own.current].map((each) => JSON.parse(each))
    expect(saved).toEqual(current)
    expect(saved.uuid).not.toBe(machine.uuid)
    expect(macs.slice(0, 2)).toEqual(['lan', 'wan'].map((key) => machine.devices[key]?.properties.mac))
    const shown = [saved.devices.lan, saved.devices.wan].map(({ properties }) => properties.mac)
    expect(shown).toEqual(['52:54:00:ff:00:01', '52:54:00:ff:00:00'])
    const plain = (each: typeof machine) => JSON.stringify(each).replaceAll(/52:54:00:[^"]*/g, '')
    expect(plain({ ...saved, uuid: machine.uuid })).toBe(plain(machine))
    expect(own.desired).toBe('')
  })
})
