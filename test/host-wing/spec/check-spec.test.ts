import { describe, expect, it } from 'vitest'
import { checkCanBeKept, checkSpec, warningsOf } from '../../../src/host/spec/check-spec.ts'
import type { Backend, Device, VmSpec } from '../../../src/host/spec/spec.ts'
import { specKey } from '../../../src/host/spec/spec-key.ts'
import { EVERYWHERE, MACHINE_PARTS, specOf } from '../../support/host/specs.ts'

const key = specKey('b')
const other = specKey('c')
const room = { cpus: 1, memoryMib: 1024, memorySlots: 4 }
const disk = { kind: 'disk', slot: 3, serial: 's', backend: key } as const
const file = { kind: 'file', path: '/f', access: 'read-only' } as const
const nvdimm = { kind: 'nvdimm', sizeBytes: 4 << 20, backend: key } as const
const nic = { kind: 'nic', slot: 3, mac: '52:54:00:00:00:02', backend: key } as const
const port = { kind: 'root-port', slot: 6 } as const
const tap = { kind: 'tap', interfaceName: 'tap0' } as const
const vsock = { kind: 'vsock', slot: 3, cid: 3, backend: key } as const
const share = { kind: 'share', slot: 6, tag: 'a', backend: key } as const
const item = { kind: 'fw-cfg', name: 'opt/a', backend: key } as const
const subnet = {
  family: 'ipv4',
  network: '10.0.0.0',
  prefixLength: 24,
  host: '10.0.0.1',
  guest: '10.0.0.2',
  nameServer: '10.0.0.3',
} as const

/** A specification of one device `d` and its backend `b`. */
function one(device: Device, backend: Backend, machine: VmSpec['board']['machine'] = 'pc-q35-7.2'): VmSpec {
  return specOf([['d', device, backend]], { machine })
}

const atPath = (path: string) => one(disk, { ...file, path })

describe('checkSpec', () => {
  it.each(['pc-q35-7.2', 'pc-i440fx-7.2', 'microvm'] as const)('accepts all that %s has', (machine) => {
    expect(() => checkSpec(specOf(MACHINE_PARTS[machine], { machine }))).not.toThrow()
  })

  it.each<[string, VmSpec, string]>([
    [
      'filters of passt',
      one({ ...nic, filters: ['no-mac-spoofing'] }, { kind: 'passt' }),
      'devices.d.nic.filters: only a tap can be filtered',
    ],
    [
      'filters of several interfaces',
      one({ ...nic, filters: ['no-mac-spoofing'] }, { ...tap, interfaceName: 'tap*' }),
      'devices.d.nic.filters: interface "tap*": want letters, digits, "_", "-" and "."',
    ],
    [
      'addresses without a filter',
      one({ ...nic, filters: ['no-mac-spoofing'], addresses: ['10.0.0.2'] }, tap),
      'devices.d.nic.addresses: no filter uses them, want no-ip-spoofing or no-arp-spoofing',
    ],
    [
      'a filter without addresses',
      one({ ...nic, filters: ['no-ip-spoofing', 'no-arp-spoofing'] }, tap),
      'devices.d.nic.addresses: missing, want those that no-ip-spoofing and no-arp-spoofing let the guest send from',
    ],
    ...['10.0.0.0/8', '010.0.0.1', 'fe80::1%eth0', '{ drop }', '224.0.0.1', 'ff02::1', '0.0.0.0', '::'].map(
      (address): [string, VmSpec, string] => [
        `the address ${address}`,
        one({ ...nic, filters: ['no-ip-spoofing'], addresses: ['10.0.0.2', address] }, tap),
        `devices.d.nic.addresses[1]: "${address}": want the IPv4 or IPv6 address of a guest`,
      ],
    ),
    ['a missing backend', specOf([['d', disk]]), 'devices.d.backend: "b": no such backend'],
    [
      'a backend named like a method',
      specOf([['d', { ...disk, backend: specKey('toString') }]]),
      'devices.d.backend: "toString": no such backend',
    ],
    [
      'a shared backend',
      specOf([
        ['d', disk, file],
        ['e', { ...disk, slot: 4 }],
      ]),
      'devices.e.backend: "b": already used by devices.d',
    ],
    [
      'an unfitting backend',
      one(disk, { kind: 'console' }),
      'devices.d.backend: "b": console not possible for disk, want file',
    ],
    [
      'one key for a device and its backend',
      specOf([['b', disk, file]]),
      'devices.b: key of a backend too, want another',
    ],
    ['an unused backend', { ...specOf([]), backends: { [key]: file } }, 'backends.b: no device uses it'],
    [
      'a slot used twice',
      specOf([
        ['d', disk, file],
        ['e', { ...disk, backend: other }, file],
      ]),
      'devices.e.slot: PCI slot 3: already used by devices.d',
    ],
    [
      'a slot used twice on microvm',
      specOf(
        [
          ['d', disk, file],
          ['e', { ...disk, backend: other }, file],
        ],
        { machine: 'microvm' },
      ),
      'devices.e.slot: PCI slot 3: already used by devices.d',
    ],
    [
      'a function used twice',
      specOf([
        ['o', port],
        ['p', { ...port, func: 1 }],
        ['q q', { ...port, func: 1 }],
      ]),
      'devices["q q"].slot: PCI slot 6.1: already used by devices.p',
    ],
    [
      'a function that the guest would not find',
      specOf([['p', { ...port, func: 1 }]]),
      'devices.p.slot: 6.1: want a root port of function 0 in this slot too',
    ],
    ['function 8', specOf([['p', { ...port, func: 8 }]]), 'devices.p.root_port.function: 8: want 0 to 7'],
    ['no slot', one({ ...disk, slot: 0 }, file), 'devices.d.slot: missing, want 2 to 30 or a port'],
    ['slot 31', one({ ...disk, slot: 31 }, file), 'devices.d.slot: 31: want 2 to 30'],
    ['slot 2.5', one({ ...disk, slot: 2.5 }, file), 'devices.d.slot: 2.5: want 2 to 30'],
    [
      'two devices in one root port',
      specOf([
        ['p', port],
        ['d', { ...disk, slot: 0, port: specKey('p') }, file],
        ['e', { ...disk, slot: 0, port: specKey('p'), backend: other }, file],
      ]),
      'devices.e.port: root port "p": already used by devices.d',
    ],
    [
      'a slot in a root port',
      specOf([
        ['p', port],
        ['d', { ...disk, port: specKey('p') }, file],
      ]),
      'devices.d.slot: 3: a root port has none, want a port or a slot',
    ],
    [
      'a port that is none',
      one({ ...disk, slot: 0, port: specKey('d') }, file),
      'devices.d.port: "d": no such root port',
    ],
    [
      'a port named like a method',
      one({ ...disk, slot: 0, port: specKey('toString') }, file),
      'devices.d.port: "toString": no such root port',
    ],
    [
      'a device in a port on pc',
      one({ ...disk, slot: 0, port: specKey('p') }, file, 'pc-i440fx-7.2'),
      'devices.d.port: machine pc-i440fx-7.2 has no root ports',
    ],
    [
      'a long serial',
      one({ ...disk, serial: 'x'.repeat(21) }, file),
      'devices.d.disk.serial: "xxxxxxxxxxxxxxxxxxxxx": invalid, want 1 to 20 letters, digits, _ or -',
    ],
    ['an empty serial', one({ ...disk, serial: '' }, file), 'devices.d.disk.serial: "": invalid'],
    [
      'a serial with a line break',
      one({ ...disk, serial: 'a\n' }, file),
      'devices.d.disk.serial: "a\\n": invalid',
    ],
    [
      'a tag that would end its option',
      one({ ...share, tag: 'a,b' }, { kind: 'virtiofsd', path: '/' }),
      'devices.d.share.tag: "a,b": invalid, want 1 to 36 letters',
    ],
    [
      'a MAC address in upper case',
      one({ ...nic, mac: '52:54:00:00:00:AA' }, { kind: 'passt' }),
      'devices.d.nic.mac: "52:54:00:00:00:AA": invalid, want lower case',
    ],
    [
      'a MAC address of a group',
      one({ ...nic, mac: '53:54:00:00:00:aa' }, { kind: 'passt' }),
      'devices.d.nic.mac: 53:54:00:00:00:aa: address of a group',
    ],
    [
      'a reserved context id',
      one({ ...vsock, cid: 2 }, { kind: 'vhost-vsock' }),
      'devices.d.vsock.cid: 2: reserved, want 3 or above',
    ],
    [
      'the context id of any guest',
      one({ ...vsock, cid: 0xffff_ffff }, { kind: 'vhost-vsock' }),
      'devices.d.vsock.cid: 4294967295: reserved',
    ],
    [
      'an item of QEMU itself',
      one({ ...item, name: 'etc/e820' }, { kind: 'content', path: '/c' }),
      'devices.d.firmware_item.name: "etc/e820": invalid, want opt/',
    ],
    [
      'a long item',
      one({ ...item, name: `opt/${'a'.repeat(52)}` }, { kind: 'content', path: '/c' }),
      'at most 55 printable characters',
    ],
    [
      'two items of one name',
      specOf([
        ['d', item, { kind: 'content', path: '/c' }],
        ['e', { ...item, backend: other }, { kind: 'content', path: '/d' }],
      ]),
      'devices.e.firmware_item.name: firmware item "opt/a": devices.d is one already',
    ],
    [
      'two shares of one tag',
      specOf([
        ['d', share, { kind: 'virtiofsd', path: '/c' }],
        ['e', { ...share, slot: 7, backend: other }, { kind: 'virtiofsd', path: '/d' }],
      ]),
      'devices.e.share.tag: share with tag "a": devices.d is one already',
    ],
    [
      'two consoles',
      specOf([
        ['d', { kind: 'serial', backend: key }, { kind: 'console' }],
        ['e', { kind: 'virtio-console', slot: 2, backend: other }, { kind: 'console' }],
      ]),
      'devices.e.virtio_console: console: devices.d is one already',
    ],
    [
      'two vsock devices',
      specOf([
        ['d', vsock, { kind: 'vhost-vsock' }],
        ['e', { ...vsock, slot: 4, backend: other }, { kind: 'vsock-daemon' }],
      ]),
      'devices.e.vsock: vsock: devices.d is one already',
    ],
    [
      'root ports on pc',
      specOf([['p', port]], { machine: 'pc' }),
      'devices.p.root_port: machine pc has no root ports',
    ],
    [
      'bridges on microvm',
      specOf([['p', { kind: 'pci-bridge', slot: 6 }]], { machine: 'microvm' }),
      'devices.p.pci_bridge: machine microvm has no PCI',
    ],
    [
      'NVMe disks on microvm',
      one({ ...disk, interface: 'nvme' }, file, 'microvm'),
      'devices.d.disk: machine microvm has no PCI, which NVMe disks need',
    ],
    [
      '25 virtio devices on microvm',
      specOf(
        Array.from({ length: 25 }, (_, index) => [
          `d${index}`,
          { ...disk, slot: index + 2, backend: specKey(`b${index}`) },
          file,
        ]),
        { machine: 'microvm' },
      ),
      'devices: 25 virtio devices, machine microvm has at most 24',
    ],
    [
      'room on microvm',
      specOf([], { machine: 'microvm', room }),
      'board.room: machine microvm has no room for CPUs or memory',
    ],
    [
      'vmgenid on microvm',
      specOf([], { machine: 'microvm', generationId: true }),
      'board.generation_id: machine microvm has no vmgenid',
    ],
    [
      'persistent memory on microvm',
      one(nvdimm, file, 'microvm'),
      'devices.d.persistent_memory: machine microvm has no persistent memory',
    ],
    [
      'persistent memory that the guest may write to',
      one(nvdimm, { ...file, access: 'scratch' }),
      'backends.b.file.access: scratch, want read-only',
    ],
    ...[1 << 20, 0, 2 ** 63, Number.NaN].map((sizeBytes): [string, VmSpec, string] => [
      `persistent memory of ${sizeBytes} bytes`,
      one({ ...nvdimm, sizeBytes }, file),
      `devices.d.persistent_memory.size_bytes: ${sizeBytes}: want a multiple of 2 MiB`,
    ]),
    [
      'persistent memory in no order',
      specOf([
        ['d', nvdimm, file],
        ['e', { ...nvdimm, backend: other }, file],
      ]),
      'devices.e.slot: persistent memory 0: already used by devices.d',
    ],
    [
      'more memory slots than there are',
      specOf([['d', nvdimm, file]], { room: { ...room, memorySlots: 256 } }),
      'board.room.memory_slots: more than 256 with those of persistent memory',
    ],
    ...[0, -1, 1.5, 2 ** 63].map((memoryMib): [string, VmSpec, string] => [
      `memory of ${memoryMib} MiB`,
      specOf([], { memoryMib }),
      `board.memory_mib: ${memoryMib}: want 1 to 16777216`,
    ]),
    ['no CPU', specOf([], { cpus: 0 }), 'board.cpus: 0: want 1 to 255'],
    ['256 CPUs', specOf([], { cpus: 256 }), 'board.cpus: 256: want 1 to 255'],
    ['room for too many CPUs', specOf([], { cpus: 255, room }), 'board.room.cpus: 1: want 0 to 0'],
    [
      'room for 2^63 MiB',
      specOf([], { room: { ...room, memoryMib: 2 ** 63 } }),
      'board.room.memory_mib: 9223372036854776000: want 0 to',
    ],
    ['an empty kernel', specOf([], { kernel: '' }), 'board.kernel: missing'],
    [
      'no kernel and no disk',
      specOf([], { kernel: undefined }),
      'board.kernel: missing, and there is no disk that the firmware could boot',
    ],
    [
      'firmware beside a kernel',
      specOf([], { firmware: 'uefi' }),
      'board.firmware: not possible with a kernel',
    ],
    ['a relative initrd', specOf([], { initrd: 'i' }), 'board.initrd: "i": want an absolute path'],
    [
      'a broken command line',
      specOf([], { commandLine: 'a\nb' }),
      'board.command_line: has a control character',
    ],
    [
      'a command line that the kernel would cut',
      specOf([], { commandLine: 'a'.repeat(2000) }),
      'board.command_line: 2000 bytes, want at most 1920',
    ],
    ['no path', atPath(''), 'backends.b.file.path: missing'],
    ['a relative path', atPath('f'), 'backends.b.file.path: "f": want an absolute path'],
    ['a path upwards', atPath('/a/../b'), 'backends.b.file.path: "/a/../b": has ".."'],
    ['a path upwards at its end', atPath('/a/..'), 'has ".."'],
    [
      'a path with a NUL byte',
      atPath('/a\0b'),
      'backends.b.file.path: "/a\\u0000b": has a control character',
    ],
    ['a path with a line break', atPath('/a\nb'), 'has a control character'],
    ['a long path', atPath(`/${'ä'.repeat(2048)}`), 'backends.b.file.path: 4097 bytes, want at most 4095'],
    [
      'a long path of a socket',
      one(vsock, { kind: 'vhost-user', socket: `/${'a'.repeat(107)}` }),
      'backends.b.vhost_user.socket: 108 bytes, want at most 107',
    ],
    ...['', '..', 'a/b', 'tap%d', 'a b', 'a'.repeat(16)].map((name): [string, VmSpec, string] => [
      `an interface named ${JSON.stringify(name)}`,
      one(nic, { kind: 'tap', interfaceName: name }),
      `backends.b.tap.interface_name: ${JSON.stringify(name)}: invalid, want 1 to 15`,
    ]),
    [
      'a bridge with a bad name',
      one(nic, { kind: 'tap', interfaceName: 'tap0', bridge: 'a b' }),
      'backends.b.tap.bridge: "a b": invalid',
    ],
    [
      'port 0',
      one(nic, { kind: 'user-network', forwards: [{ hostPort: 0, guestPort: 1 }] }),
      'backends.b.user_network.forwards[0].host_port: 0: want 1 to 65535',
    ],
    [
      'two subnets of a family',
      one(nic, { kind: 'user-network', forwards: [], subnets: [subnet, subnet] }),
      'backends.b.user_network.subnets[1]: ipv4: given twice',
    ],
    [
      'a subnet whose host would end its option',
      one(nic, { kind: 'user-network', forwards: [], subnets: [{ ...subnet, host: '10.0.0.1,x' }] }),
      'backends.b.user_network.subnets[0].host: "10.0.0.1,x": want an address of ipv4',
    ],
    [
      'a limit of reboots without a time',
      { ...specOf([]), rebootLimit: { count: 1, seconds: 0 } },
      'reboot_limit.seconds: 0: want 1 to 86400',
    ],
    [
      'less memory for all processes than the guest has',
      { ...specOf([]), limits: { memoryMib: 1, cpuMilli: 0, tasks: 0 } },
      'limits.memory_mib: 1: want 256 to 33554432',
    ],
    [
      'too small a part of a CPU',
      { ...specOf([]), limits: { memoryMib: 0, cpuMilli: 9, tasks: 0 } },
      'limits.cpu_milli: 9: want 10 to 1000000',
    ],
    [
      'too few tasks',
      { ...specOf([]), limits: { memoryMib: 0, cpuMilli: 0, tasks: 15 } },
      'limits.tasks: 15: want 16 to 4194304',
    ],
  ])('refuses %s', (_name, vm, sentence) => {
    expect(() => checkSpec(vm)).toThrow(sentence)
  })

  it.each<[string, Device, Backend]>([
    ['vsock_daemon', vsock, { kind: 'vsock-daemon' }],
    ['vhost_user', vsock, { kind: 'vhost-user', socket: '/s' }],
    ['virtiofsd', share, { kind: 'virtiofsd', path: '/f' }],
  ])('refuses %s over the memory of a template', (name, device, backend) => {
    const spec = one(device, backend)
    const text = `backends.b.${name}: vhost-user maps the memory of the template itself`
    expect(() => checkSpec({ ...spec, memory: { path: '/m' } })).toThrow(text)
    expect(() => checkSpec(spec)).not.toThrow()
  })

  it('accepts private memory where QEMU and the kernel have all devices', () => {
    const memory = { path: '/m' }
    expect(() => checkSpec({ ...one(vsock, { kind: 'vhost-vsock' }), memory })).not.toThrow()
    expect(() => checkSpec({ ...one(nic, tap), memory })).not.toThrow()
  })

  it('refuses 65,536 components before it looks at them', () => {
    const devices = Array.from(
      { length: 65_536 },
      (_, index) => [`d${index}`, { ...disk, slot: index }] as const,
    )
    expect(() => checkSpec(specOf(devices))).toThrow(
      'specification: 65536 devices and backends, want at most 1024',
    )
  })

  it('says little of a long text', () => {
    const long = 'x'.repeat(1 << 20)
    expect(() => checkSpec(one({ ...disk, serial: long }, file))).toThrow(/^.{1,300}$/)
    expect(() => checkSpec(atPath(long))).toThrow(/^.{1,300}$/)
  })
})

describe('checkCanBeKept', () => {
  it('refuses what only a machine of one run may have', () => {
    const user = one(nic, { kind: 'user-network', forwards: [] })
    expect(() => checkCanBeKept(user)).toThrow("backends.b.user_network: QEMU's own network")
    expect(() => checkCanBeKept(specOf([], { machine: 'q35' }))).toThrow(
      'board.machine: q35 is another machine in each QEMU, want pc-q35-7.2',
    )
    expect(() => checkCanBeKept(specOf([], { machine: 'pc' }))).toThrow('want pc-i440fx-7.2')
  })

  it.each(['microvm', 'pc-q35-7.2'] as const)('accepts %s with other networks', (machine) => {
    const parts = EVERYWHERE.filter(([name]) => name !== 'user')
    expect(() => checkCanBeKept(specOf(parts, { machine }))).not.toThrow()
  })
})

describe('warningsOf', () => {
  it('tells of a machine without versions and of files that cannot be replaced', () => {
    expect(warningsOf(specOf(EVERYWHERE, { machine: 'microvm' }))).toEqual([
      'board.machine: microvm has no versions, so another QEMU may make another machine of it',
      'backends["scratch \\"file\\""]: cannot be replaced while the machine runs, because its access is SCRATCH',
    ])
    expect(warningsOf(specOf([]))).toEqual([])
  })
})
