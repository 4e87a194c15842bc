import { describe, expect, it } from 'vitest'
import { expanded, pciPlace } from '../../support/host-wing/expansion.ts'

const refusal = (features: Readonly<Record<string, unknown>>) => {
  try {
    expanded(features)
  } catch (error) {
    return String(error).replace('AgentError: spec.features.', '')
  }
  return 'taken'
}

const nic = (address?: unknown) => ({ source: 'lan', ...(address !== undefined && { address }) })

describe('the places on PCI', () => {
  it('of pc are the slots from 3 on, in the order of kinds, and slot 2 for a screen', () => {
    const storage = [{ source: 'a' }, { source: 'b', interface: 'virtio-scsi' }]
    const machine = expanded({ machine: 'pc', storage, network: [nic()], rng: true, graphics: true })
    const keys = ['video0', 'nic0', 'scsi0', 'virtio-serial0', 'disk0', 'rng0', 'balloon0']
    expect(keys.map((key) => pciPlace(machine, key))).toEqual([
      ...['00:02.0', '00:03.0', '00:04.0', '00:05.0', '00:06.0', '00:07.0', '00:08.0'],
    ])
  })

  it('of q35 are root ports for what can be unplugged, eight in a slot', () => {
    const machine = expanded({ storage: Array(5).fill({ source: 'a' }), network: [nic()] })
    const ports = ['spare0', 'spare3', 'nic0-port', 'disk0-port', 'disk4-port'].map((key) =>
      pciPlace(machine, key),
    )
    expect(ports).toEqual(['00:03.0', '00:03.3', '00:03.4', '00:03.5', '00:04.1'])
    expect(pciPlace(machine, 'nic0')).toBe('05:00.0')
    expect(pciPlace(machine, 'balloon0')).toBe('00:05.0')
    expect(machine.devices.spare0?.properties).toEqual({ chassis: 1, multifunction: true })
    expect(machine.devices['nic0-port']?.properties).toEqual({ chassis: 5 })
  })

  it('that are given are kept, and the others go around them', () => {
    const machine = expanded({ machine: 'pc', network: [nic(), nic('00:03.0'), nic({ bus: 0, slot: 4 })] })
    expect(['nic0', 'nic1', 'nic2'].map((key) => pciPlace(machine, key))).toEqual([
      '00:05.0',
      '00:03.0',
      '00:04.0',
    ])
  })

  it('in ports and bridges are named by their bus', () => {
    const q35 = expanded({
      controllers: [{ type: 'root-port', address: '00:1c.0' }],
      network: [nic('01:00.0')],
    })
    expect([pciPlace(q35, 'port0'), pciPlace(q35, 'nic0')]).toEqual(['00:1c.0', '01:00.0'])
    const pc = expanded({ machine: 'pc', controllers: [{ type: 'pci-bridge' }], network: [nic('01:1f.0')] })
    expect([pciPlace(pc, 'bridge0'), pciPlace(pc, 'nic0')]).toEqual(['00:03.0', '01:1f.0'])
  })

  it('of pc go on behind bridges', () => {
    const machine = expanded({ machine: 'pc', network: Array(60).fill({ source: 'lan' }) })
    const buses = Object.values(machine.devices).map(({ address }) =>
      address?.type === 'pci' ? address.bus : 0,
    )
    expect(new Set(buses)).toEqual(new Set([0, 1, 2]))
    expect(Object.keys(machine.devices).filter((key) => key.startsWith('bridge-'))).toEqual([
      'bridge-1',
      'bridge-2',
    ])
  })

  it('may be other functions of one slot', () => {
    const machine = expanded({ machine: 'pc', network: [nic('00:04.0'), nic('00:04.1')] })
    expect(machine.devices.nic0?.properties.multifunction).toBe(true)
    expect(machine.devices.nic1?.properties.multifunction).toBeUndefined()
  })

  it.each([
    ['pc', [nic('00:04.0'), nic('00:04.0')], 'network[1].address: 00:04.0: already that of nic0'],
    ['pc', [nic('00:04.1')], 'network[0].address: 00:04.1: no device has function 0 of this slot'],
    ['pc', [nic('00:00.0')], "network[0].address: 00:00.0: the board's own slot"],
    ['pc', [nic('00:01.3')], "network[0].address: 00:01.3: the board's own slot"],
    ['q35', [nic('00:1f.0')], "network[0].address: 00:1f.0: the board's own slot"],
    ['pc', [nic('01:00.0')], 'network[0].address: 01:00.0: no port or bridge has bus 1'],
    ['q35', [nic('01:01.0')], 'network[0].address: 01:01.0: a root port has slot 0 only'],
    ['pc', [nic('00:20.0')], 'network[0].address: "00:20.0", want an address such as 00:05.0'],
    ['pc', [nic({ slot: 32 })], 'network[0].address.slot: 32, want a whole number, 0 to 31'],
    [
      'pc',
      [...Array.from({ length: 28 }, (_, slot) => nic({ slot: slot + 3 })), nic()],
      'network[28]: no free place on PCI, want fewer devices',
    ],
    ['microvm', [nic('00:05.0')], 'network[0].address: machine microvm has no PCI'],
    ['q35', Array(240).fill(nic()), 'no free place on PCI'],
  ])('on %s refuse %j', (machine, network, reason) => {
    expect(refusal({ machine, network })).toContain(reason)
  })

  it('of machine microvm are at most 24', () => {
    expect(refusal({ machine: 'microvm', network: Array(24).fill(nic()) })).toBe('taken')
    expect(refusal({ machine: 'microvm', network: Array(25).fill(nic()) })).toContain('25 virtio devices')
  })
})
