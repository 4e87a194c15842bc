import { describe, expect, it } from 'vitest'
import { expanded, pciPlace } from '../../../support/host-wing/expansion.ts'

const refusal = (features: Readonly<Record<string, unknown>>) => {
  try {
    expanded(features)
  } catch (error) {
    return String(error).replace('AgentError: spec.features.', '')
  }
  return 'taken'
}

describe('network', () => {
  it('is a virtio card with an address of its own for the name of a network', () => {
    const { backends, devices } = expanded({ network: [{ source: 'lan' }] })
    expect(devices.nic0?.model).toBe('virtio-net')
    expect(devices.nic0?.properties.mac).toMatch(/^52:54:00(:[0-9a-f]{2}){3}$/)
    expect(backends['nic0-backend']).toEqual({ kind: 'network', name: 'lan', options: {} })
  })

  it('keeps what is given', () => {
    const nic = {
      source: 'lan',
      mac: '00:AA:bb:cc:dd:ee',
      queues: 2,
      filter: ['no-ip-spoofing', 'no-mac-spoofing'],
      addresses: ['10.0.0.2', 'fd00::2'],
    }
    const { backends, devices } = expanded({ network: [{ ...nic, address: '00:09.0', bootOrder: 2 }] })
    expect(devices.nic0?.properties).toEqual({ mac: '00:aa:bb:cc:dd:ee', bootindex: 2, queues: 2 })
    expect(backends['nic0-backend']?.options).toEqual({
      filters: 'no-ip-spoofing,no-mac-spoofing',
      addresses: '10.0.0.2,fd00::2',
    })
  })

  it("has the guest's addresses for its filters when it is the only one", () => {
    const nic = { source: 'lan', filter: 'clean-traffic' }
    const metadata = { v4: { ip: '10.0.0.2/24', peer: '10.0.0.1' }, v6: { ip: 'fd00::2' } }
    const { backends } = expanded({ network: [nic], metadata })
    expect(backends['nic0-backend']?.options.addresses).toBe('10.0.0.2,fd00::2')
    const plain = expanded({ network: [{ ...nic, filter: 'no-mac-spoofing' }], metadata })
    expect(plain.backends['nic0-backend']?.options).toEqual({ filters: 'no-mac-spoofing' })
    const missing = 'network[0].addresses: missing, want those that clean-traffic let the guest send from'
    expect(refusal({ network: [nic] })).toContain(missing)
    expect(refusal({ network: [nic], metadata: { name: 'web' } })).toContain(missing)
    expect(refusal({ network: [nic, { source: 'lan' }], metadata })).toContain(missing)
  })

  it.each([
    [
      { source: 'lan', mac: '01:00:5e:00:00:01' },
      'network[0].mac: 01:00:5e:00:00:01: address of a group, want an even first byte',
    ],
    [{ source: 'lan', mac: '00:00:00:00:00:00' }, 'network[0].mac: 00:00:00:00:00:00: no address of a card'],
    [
      { source: 'lan', mac: '52:54:00' },
      'network[0].mac: "52:54:00", want six bytes such as 52:54:00:12:34:56',
    ],
    [
      { source: 'lan', filter: 'no-mac-spofing' },
      'filter: "no-mac-spofing", did you mean "no-mac-spoofing"?',
    ],
    [{ source: 'lan', model: 'e1000', queues: 2 }, 'network[0].queues: 2: model e1000 has one'],
    [{ source: { kind: 'bridge', name: 'br0' } }, 'network[0].source.kind: "bridge", want network'],
    [{}, 'network[0].source: missing'],
    [
      { source: 'lan', filter: 'no-mac-spoofing', addresses: ['10.0.0.2'] },
      'network[0].addresses: no filter uses them, want no-ip-spoofing or no-arp-spoofing',
    ],
    [
      { source: 'lan', filter: 'no-ip-spoofing', addresses: ['10.0.0.2', '224.0.0.1'] },
      'network[0].addresses[1]: "224.0.0.1": want the IPv4 or IPv6 address of a guest',
    ],
  ])('refuses %j', (nic, reason) => {
    expect(refusal({ network: [nic] })).toContain(reason)
  })

  it('refuses one MAC for two cards', () => {
    const nic = { source: 'lan', mac: '52:54:00:00:00:01' }
    expect(refusal({ network: [nic, nic] })).toContain(
      'network[1].mac: MAC 52:54:00:00:00:01: already that of spec.features.network[0]',
    )
  })
})

describe('graphics', () => {
  it('is spice with qxl and the channel of its agent', () => {
    const { backends, devices } = expanded({ graphics: true })
    expect(devices.video0).toMatchObject({
      model: 'qxl-vga',
      properties: { max_outputs: 1, ram_size: 67_108_864, vram_size: 8_388_608, vgamem_mb: 16 },
    })
    expect(backends['display0-backend']).toEqual({ kind: 'spice', options: {} })
    expect(devices.channel0?.properties).toEqual({ name: 'com.redhat.spice.0' })
    expect(backends['channel0-backend']?.kind).toBe('spice-agent')
  })

  it('by vnc has a plain card and no channel', () => {
    const { devices } = expanded({ graphics: { type: 'vnc', password: 'screen' } })
    expect(devices.video0).toMatchObject({ model: 'VGA', properties: { vgamem_mb: 16 } })
    expect(devices.channel0).toBeUndefined()
  })

  it.each([
    [{ graphics: true, machine: 'microvm' }, 'graphics: machine microvm has no screen'],
    [{ graphics: { video: 'vga', ram: 2048 } }, 'graphics.ram: video vga has none'],
    [{ graphics: { video: 'vga', heads: 4 } }, 'graphics.heads: 4: video vga has 1'],
    [{ graphics: { video: 'virtio', vgamem: 65_536 } }, 'graphics.vgamem: video virtio has none'],
    [{ graphics: { enabled: false, heads: 3 } }, 'graphics.heads: of a feature that is not enabled'],
    [{ graphics: { passwordValidTo: '2030-01-01T00:00:00' } }, 'graphics.passwordValidTo: wants a password'],
    [
      { graphics: { password: 'x', passwordValidTo: '2030-02-30T25:00:00' } },
      'graphics.passwordValidTo: 2030-02-30T25:00:00: no such time',
    ],
  ])('refuses %j', (features, reason) => {
    expect(refusal(features)).toBe(reason)
  })
})

describe('console', () => {
  const consoleOf = (features: object) => expanded({ ...features }).devices.console0?.model

  it('is serial unless there is a screen', () => {
    expect(consoleOf({})).toBe('isa-serial')
    expect(consoleOf({ graphics: true })).toBeUndefined()
    expect(consoleOf({ graphics: true, console: 'serial' })).toBe('isa-serial')
    expect(consoleOf({ console: 'none' })).toBeUndefined()
  })

  it('by virtio has port 0 of a controller', () => {
    const { devices } = expanded({ console: 'virtio' })
    expect(devices.console0?.address).toEqual({ type: 'port', controller: 'virtio-serial0', port: 0 })
  })
})

describe('vsock', () => {
  it('leaves the context id to the daemon', () => {
    const { devices } = expanded({ vsock: true })
    expect(devices.vsock0).toMatchObject({ model: 'virtio-vsock', properties: { 'guest-cid': 0 } })
    expect(expanded({ vsock: false }).devices.vsock0).toBeUndefined()
  })

  it('has no reserved one', () => {
    expect(refusal({ vsock: { cid: 2 } })).toBe('vsock.cid: 2, want a whole number, 3 to 4294967294')
  })
})

describe('metadata', () => {
  it('is an item of the firmware with name and addresses', () => {
    const { backends, devices } = expanded({
      metadata: { name: 'web', v4: { ip: '10.0.0.2/24', peer: '10.0.0.1' } },
    })
    expect(devices.metadata0?.model).toBe('fw_cfg')
    expect(backends['metadata0-backend']?.options).toEqual({
      hostName: 'web',
      v4: '10.0.0.2/24',
      v4Peer: '10.0.0.1',
    })
  })

  it.each(['10.0.0.2/33', 'fe80::1', '10.0.0.2/24/1'])('refuses %s for ipv4', (ip) => {
    expect(refusal({ metadata: { v4: { ip } } })).toBe(`metadata.v4.ip: "${ip}": want an address of ipv4`)
  })
})

describe('share', () => {
  it('is virtio-fs or 9p of a folder by its name', () => {
    const { backends, devices } = expanded({
      share: [
        { source: 'home', tag: 'a' },
        { source: 'srv', tag: 'b', type: '9p', readonly: true },
      ],
    })
    expect([devices.share0, devices.share1]).toMatchObject([
      { model: 'vhost-user-fs', properties: { tag: 'a' } },
      { model: 'virtio-9p', properties: { mount_tag: 'b' } },
    ])
    expect(backends['share1-backend']).toEqual({ kind: 'folder', name: 'srv', options: { readOnly: true } })
  })

  it('has a tag of its own', () => {
    const share = [
      { source: 'a', tag: 'x' },
      { source: 'b', tag: 'x' },
    ]
    expect(refusal({ share })).toBe('share[1].tag: x: already that of spec.features.share[0]')
  })
})

describe('rng', () => {
  it('has the limit that is given', () => {
    expect(expanded({ rng: true }).devices.rng0?.properties).toEqual({})
    expect(expanded({ rng: { rate: { bytes: 64 } } }).devices.rng0?.properties).toEqual({
      'max-bytes': 64,
      period: 1000,
    })
  })

  it('names no file of the host', () => {
    expect(refusal({ rng: { path: '/etc/shadow' } })).toBe(
      "rng.path: is the host's, want a name of the catalogue",
    )
  })
})

describe('balloon', () => {
  it('is there where the guest begins with less than all memory', () => {
    const memory = { size: 512, current: 256 }
    expect(expanded({ memory }).devices.balloon0).toBeDefined()
    const reason = 'balloon: none, but memory.current is 256 of 512 MiB, want one'
    expect(refusal({ memory, balloon: false })).toContain(reason)
    expect(refusal({ memory: { ...memory, maximum: 512 }, machine: 'microvm' })).toContain(reason)
    expect(expanded({ memory: { ...memory, maximum: 512 }, machine: 'microvm', balloon: true })).toBeDefined()
  })

  it('is there unless it is turned off', () => {
    expect(expanded({}).devices.balloon0?.model).toBe('virtio-balloon')
    expect(expanded({ balloon: false }).devices.balloon0).toBeUndefined()
    expect(expanded({ machine: 'microvm' }).devices.balloon0).toBeUndefined()
    expect(expanded({ balloon: { deflateOnOom: true } }).devices.balloon0?.properties).toEqual({
      'deflate-on-oom': true,
    })
  })
})

describe('input', () => {
  it('comes with a screen: a PS/2 mouse, or a tablet where there is no agent', () => {
    expect(expanded({}).devices.input0).toBeUndefined()
    expect(expanded({ graphics: true }).devices.input0).toMatchObject({ model: 'ps2-mouse', builtIn: true })
    expect(expanded({ graphics: { type: 'vnc' } }).devices.input0).toMatchObject({
      ...{ model: 'usb-tablet', address: { controller: 'usb0', port: 1 } },
    })
  })

  it('takes the ports of USB in turn, and refuses more than there are', () => {
    const input = Array(3).fill({ type: 'tablet' })
    expect(refusal({ machine: 'pc', input })).toBe('input[2]: no free port at usb0')
    expect(refusal({ input })).toBe('taken')
  })

  it('refuses a tablet on PS/2', () => {
    expect(refusal({ input: [{ type: 'tablet', bus: 'ps2' }] })).toBe(
      'input[0].bus: ps2 has no tablets, want usb or virtio',
    )
  })
})

describe('watchdog', () => {
  it('resets a guest by default', () => {
    expect(expanded({ watchdog: true }).devices.watchdog0).toMatchObject({
      model: 'i6300esb',
      properties: { action: 'reset' },
    })
    const isa = expanded({ watchdog: { model: 'ib700', action: 'poweroff' } })
    expect(pciPlace(isa, 'watchdog0')).toBeUndefined()
  })

  it('of ISA has no address', () => {
    const watchdog = { model: 'ib700', address: '00:05.0' }
    expect(refusal({ watchdog })).toBe('watchdog.address: ib700 is no device of PCI')
  })
})

describe('generationId', () => {
  it('is on no bus, and never on by itself', () => {
    const { backends, devices } = expanded({ generationId: true })
    expect(devices.generation0).toEqual({ kind: 'generation-id', model: 'vmgenid', properties: {} })
    expect(backends).toEqual(expanded({}).backends)
    expect(expanded({}).devices.generation0).toBeUndefined()
  })

  it('is no device of machine microvm', () => {
    const text = 'generationId: machine microvm has no vmgenid'
    expect(refusal({ machine: 'microvm', generationId: true })).toBe(text)
  })

  it('needs ACPI', () => {
    const text = 'generationId: the guest finds vmgenid by ACPI, want system.acpi true'
    expect(refusal({ system: { acpi: false }, generationId: true })).toBe(text)
  })
})

describe('channel', () => {
  it('is a named port', () => {
    const { backends, devices } = expanded({
      channel: [{ name: 'org.example.0' }, { name: 'org.example.1' }],
    })
    expect(devices.channel1).toMatchObject({ properties: { name: 'org.example.1' }, address: { port: 2 } })
    expect(backends['channel1-backend']).toEqual({ kind: 'socket', options: {} })
  })

  it('of the guest agent is the one that the system has brought', () => {
    const { devices } = expanded({ system: 'windows', channel: [{ name: 'org.qemu.guest_agent.0' }] })
    expect(devices.channel1).toBeUndefined()
  })

  it.each([
    [[{ name: 'a' }, { name: 'a' }], 'channel[1].name: "a": given twice'],
    [
      Array.from({ length: 16 }, (_, index) => ({ name: `c${index}` })),
      'channel[15]: virtio-serial0 has 16 ports, the first for a console, want a controller with more',
    ],
    [[{ name: 'com.redhat.spice.0' }], 'channel[0].name: com.redhat.spice.0: wants graphics of type spice'],
    [[{ name: 'a', path: '/run/a' }], "channel[0].path: is the host's, want a name of the catalogue"],
  ])('refuses %j', (channel, reason) => {
    expect(refusal({ channel })).toBe(reason)
  })
})
