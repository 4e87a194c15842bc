import { describe, expect, it } from 'vitest'
import { expanded } from '../../../support/host-wing/expansion.ts'

const refusal = (features: Readonly<Record<string, unknown>>) => {
  try {
    expanded(features)
  } catch (error) {
    return String(error).replace('AgentError: spec.features.', '')
  }
  return 'taken'
}

describe('storage', () => {
  it('is a virtio disk with a serial of its own for the name of a volume', () => {
    const { backends, devices } = expanded({ storage: [{ source: 'root' }] })
    expect(devices.disk0).toMatchObject({ kind: 'disk', model: 'virtio-blk', backend: 'disk0-backend' })
    expect(devices.disk0?.properties.serial).toMatch(/^[0-9a-f]{20}$/)
    expect(backends['disk0-backend']).toEqual({ kind: 'volume', name: 'root', options: {} })
  })

  it('has a cdrom where the board has its own: IDE on pc, SATA on q35, SCSI on microvm', () => {
    const cdrom = (machine: string) => expanded({ machine, storage: [{ type: 'cdrom' }] }).devices.cdrom0
    expect(cdrom('pc')).toMatchObject({ model: 'ide-cd', address: { controller: 'ide0', bus: 1, unit: 0 } })
    expect(cdrom('q35')).toMatchObject({ model: 'ide-cd', address: { controller: 'sata0', unit: 0 } })
    expect(cdrom('microvm')).toMatchObject({ model: 'scsi-cd', address: { controller: 'scsi0' } })
  })

  it('leaves a cdrom without a source empty', () => {
    const { backends } = expanded({ storage: [{ type: 'cdrom', optional: true }] })
    expect(backends['cdrom0-backend']).toEqual({ kind: 'empty', options: { readOnly: true, optional: true } })
  })

  it('brings one controller for all disks of SCSI, and keeps units that are given', () => {
    const scsi = { interface: 'virtio-scsi', source: 'a' }
    const { devices } = expanded({ storage: [scsi, { ...scsi, unit: 0 }, scsi] })
    const targets = ['disk0', 'disk1', 'disk2'].map((key) => devices[key]?.address)
    expect(targets).toMatchObject([{ target: 1 }, { target: 0 }, { target: 2 }])
    expect(Object.keys(devices).filter((key) => key.startsWith('scsi'))).toEqual(['scsi0'])
  })

  it('writes down how the host is to treat the volume', () => {
    const own = { format: 'qcow2', cache: 'none', io: 'native', snapshot: false, limits: { iopsTotal: 100 } }
    const disk = {
      source: 'a',
      serial: 'root',
      bootOrder: 1,
      errorPolicy: 'enospace',
      readonly: true,
      ...own,
    }
    const { backends, devices } = expanded({ storage: [disk] })
    expect(devices.disk0?.properties).toEqual({
      serial: 'root',
      bootindex: 1,
      werror: 'enospc',
      rerror: 'report',
    })
    expect(backends['disk0-backend']?.options).toEqual({
      ...{ format: 'qcow2', readOnly: true, cache: 'none', io: 'native', snapshot: false, iopsTotal: 100 },
    })
  })

  it('keeps names that are given', () => {
    expect(expanded({ storage: [{ name: 'root', source: 'a' }] }).devices.root?.backend).toBe('root-backend')
  })

  it.each([
    [[{ type: 'disk' }], 'storage[0].source: missing, want the name of a volume'],
    [
      [{ source: '/etc/passwd' }],
      'storage[0].source: "/etc/passwd", want a name of 1 to 63 letters, digits, _, . or -',
    ],
    [[{ source: { kind: 'file', path: '/a' } }], 'storage[0].source.path: unknown field, want kind, name'],
    [[{ source: 'a', interface: 'ide' }], 'storage[0]: machine pc-q35-7.2 has no IDE, want sata'],
    [
      [{ type: 'cdrom', interface: 'nvme' }],
      'storage[0].interface: nvme: a cdrom wants ide, sata or virtio-scsi',
    ],
    [[{ source: 'a', unit: 1 }], 'storage[0].unit: interface virtio-blk has none'],
    [[{ type: 'cdrom', unit: 6 }], 'storage[0].unit: 6: want 0 to 5'],
    [[{ type: 'cdrom', readonly: false }], 'storage[0].readonly: false: a cdrom is read-only'],
    [[{ source: 'a', optional: true }], 'storage[0].optional: only a cdrom may be empty'],
    [
      [{ source: 'a', interface: 'sata', address: '00:05.0' }],
      'storage[0].address: its controller has one, want a unit',
    ],
    [
      [{ source: 'a', serial: 'x'.repeat(21) }],
      'storage[0].serial: "xxxxxxxxxxxxxxxxxxxxx": want at most 20',
    ],
    [
      [{ source: 'a', interface: 'nvme', errorPolicy: 'stop' }],
      'storage[0].errorPolicy: interface nvme has none',
    ],
    [
      [{ source: 'a', interface: 'sata', readonly: true }],
      'storage[0].readonly: true: a disk on ide or sata is written, want virtio-blk or virtio-scsi',
    ],
    [[{ source: 'a', io: 'native' }], 'storage[0].io: native: wants cache none or directsync, has writeback'],
    [
      [{ source: 'a', interface: 'nvme', cache: 'writethrough' }],
      'storage[0].cache: writethrough: nvme has a cache of its own, want none, writeback or unsafe',
    ],
    [Array(7).fill({ type: 'cdrom' }), 'storage[6]: interface sata has 6 units, all in use'],
    [[{ name: 'sata0', source: 'a' }], 'storage[0]: name "sata0": already that of spec.features.controllers'],
  ])('refuses %j', (storage, reason) => {
    expect(refusal({ storage })).toContain(reason)
  })

  it.each(['constructor', 'toString', 'valueOf'])('may have the name %s', (name) => {
    expect(Object.keys(expanded({ storage: [{ name, source: 'a' }] }).devices)).toContain(name)
  })

  it('refuses two disks with one serial, one boot order, and a thousand disks', () => {
    const twice = (field: object) =>
      refusal({
        storage: [
          { source: 'a', ...field },
          { source: 'b', ...field },
        ],
      })
    expect(twice({ serial: 'x' })).toContain(
      'storage[1].serial: serial x: already that of spec.features.storage[0]',
    )
    expect(twice({ bootOrder: 1 })).toContain('storage[1].bootOrder: boot order 1: already that of')
    expect(refusal({ storage: Array(1000).fill({ source: 'a' }) })).toContain('no free place on PCI')
    expect(refusal({ machine: 'pc', storage: Array(1000).fill({ source: 'a' }) })).toMatch(
      /^storage\[\d+\]: no free place on PCI, want fewer devices/,
    )
    expect(refusal({ machine: 'pc', storage: Array(700).fill({ source: 'a' }) })).toMatch(
      /spec.features: \d+ devices and backends, want at most 1024/,
    )
    expect(refusal({ storage: Array(1025).fill({ source: 'a' }) })).toBe(
      'storage: 1025 items, want at most 1024',
    )
  })
})

describe('controllers', () => {
  it('are those of the board, and four empty root ports of q35', () => {
    expect(Object.keys(expanded({ balloon: false, console: 'none' }).devices)).toEqual([
      ...['sata0', 'spare0', 'spare1', 'spare2', 'spare3'],
    ])
    expect(Object.keys(expanded({ machine: 'pc', balloon: false, console: 'none' }).devices)).toEqual([
      'ide0',
    ])
  })

  it('are added by type, with what is given', () => {
    const { devices } = expanded({
      controllers: [{ type: 'virtio-serial', ports: 8, address: '00:0a.0' }, { type: 'scsi' }],
    })
    expect(devices['virtio-serial0']).toMatchObject({ properties: { max_ports: 8 }, address: { slot: 10 } })
    expect(devices.scsi0?.model).toBe('virtio-scsi')
  })

  it('may name the ones of the board at their own places', () => {
    const controllers = [
      { type: 'ide', address: '00:01.1' },
      { type: 'usb', model: 'piix3-uhci', address: { slot: 1, function: 2 } },
    ]
    expect(Object.keys(expanded({ machine: 'pc', controllers, balloon: false }).devices)).toEqual([
      'ide0',
      'usb0',
      'console0',
    ])
  })

  it.each([
    ['pc', { type: 'ide', address: '00:05.0' }, '[0].address: 00:05.0: the board has it at 00:01.1'],
    ['pc', { type: 'sata' }, '[0]: machine pc-i440fx-7.2 has no SATA, want ide'],
    ['pc', { type: 'root-port' }, '[0].type: machine pc-i440fx-7.2 has no root-ports'],
    ['q35', { type: 'pci-bridge' }, '[0].type: machine pc-q35-7.2 has no pci-bridges'],
    ['q35', { type: 'usb', model: 'piix3-uhci' }, '[0].model: piix3-uhci: machine pc-q35-7.2 has qemu-xhci'],
    ['q35', { type: 'scsi', ports: 3 }, '[0].ports: a controller of type scsi has none'],
    ['q35', { type: 'root-port', ports: 4 }, '[0].ports: a controller of type root-port has none'],
    ['q35', { type: 'root-port', model: 'virtio-scsi' }, '[0].model: virtio-scsi: a root-port has one model'],
    ['microvm', { type: 'usb' }, '[0]: machine microvm has no USB'],
  ])('of %s refuse %j', (machine, controller, reason) => {
    expect(refusal({ machine, controllers: [controller] })).toBe(`controllers${reason}`)
  })
})
