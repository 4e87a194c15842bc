import { describe, expect, it } from 'vitest'
import { newDocument, withOwnHardware } from '../../../src/host/instance/documents/document-record.ts'
import { expanded } from '../../support/host-wing/expansion.ts'

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
