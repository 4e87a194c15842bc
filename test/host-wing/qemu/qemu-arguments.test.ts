import { describe, expect, it } from 'vitest'
import { type QemuHost, qemuArguments } from '../../../src/host/qemu/qemu-arguments.ts'
import type { Backend, Board, Device, VmSpec } from '../../../src/host/spec/spec.ts'
import { specKey } from '../../../src/host/spec/spec-key.ts'

const board: Board = {
  machine: 'q35',
  memoryMib: 512,
  cpus: 2,
  kernel: '/k',
  initrd: '/i',
  commandLine: 'console=ttyS0 root=/dev/vda',
}
const room = { cpus: 1, memoryMib: 1024, memorySlots: 4 }
const SANDBOX = 'on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny'
const ALWAYS = [
  ...['-no-user-config', '-nodefaults', '-display', 'none', '-no-reboot'],
  ...['-sandbox', SANDBOX],
]
const EMULATED_LINE =
  'mitigations=off rcupdate.rcu_expedited=1 norandmaps cryptomgr.notests noreplace-smp console=ttyS0 root=/dev/vda'
const bootBy = (line: string) => ['-kernel', '/k', '-initrd', '/i', '-append', line]
const BOOT = bootBy(EMULATED_LINE)
const QMP = ['-chardev', 'socket,id=qmp,fd=3', '-mon', 'qmp,mode=control']
const TCG = ['-accel', 'tcg,thread=multi', '-cpu', 'max,erms=off,la57=off,smap=off']
const SIZE = ['-smp', '2', '-m', '512M']

type Parts = readonly (readonly [string, Device, (Backend | undefined)?])[]

/** A specification from `[key, device, backend]` rows; the device names the backend's key. */
function spec(parts: Parts, overrides: Partial<Board> = {}): VmSpec {
  return {
    board: { ...board, ...overrides },
    devices: Object.fromEntries(parts.map(([key, device]) => [specKey(key), device])),
    backends: Object.fromEntries(
      parts.flatMap(([, device, backend]) =>
        backend === undefined || !('backend' in device) ? [] : [[device.backend, backend]],
      ),
    ),
  }
}

const twoDisks: Parts = [
  [
    'root',
    { kind: 'disk', slot: 3, serial: 'root', backend: specKey('root-file') },
    { kind: 'file', path: '/root.erofs', access: 'read-only' },
  ],
  [
    'data',
    { kind: 'disk', slot: 5, serial: 'data', backend: specKey('data-file') },
    { kind: 'file', path: '/a,b.ext4', access: 'scratch' },
  ],
]

const ROOT_DRIVE = [
  ...['-blockdev', 'driver=file,node-name=name-root-file.a,filename=/root.erofs,read-only=on'],
  ...['-blockdev', 'driver=raw,node-name=name-root-file,file=name-root-file.a,read-only=on'],
]
const DATA_DRIVE = ['-drive', 'if=none,id=name-data-file,format=raw,file=/a,,b.ext4,snapshot=on,cache=unsafe']

const EMULATED = 'mitigations=off rcupdate.rcu_expedited=1 norandmaps cryptomgr.notests noreplace-smp'

describe('qemuArguments', () => {
  it('puts the disks of q35 into their PCI slots', () => {
    expect(qemuArguments(spec(twoDisks), { acceleration: 'tcg', qmp: { fd: 3 } })).toEqual([
      ...ALWAYS,
      ...['-machine', 'q35,usb=off', ...TCG, ...SIZE, ...BOOT, ...QMP],
      ...[...ROOT_DRIVE, '-device', 'virtio-blk-pci,addr=0x3,id=name-root,drive=name-root-file,serial=root'],
      ...[...DATA_DRIVE, '-device', 'virtio-blk-pci,addr=0x5,id=name-data,drive=name-data-file,serial=data'],
    ])
  })

  it.each([
    ['bios', []],
    [
      'uefi',
      [
        ...['-drive', 'if=pflash,format=raw,unit=0,readonly=on,file=/usr/share/OVMF/OVMF_CODE_4M.fd'],
        ...['-drive', 'if=pflash,format=raw,unit=1,snapshot=on,file=/usr/share/OVMF/OVMF_VARS_4M.fd'],
      ],
    ],
  ] as const)('boots the disks in the order of their slots by %s', (firmware, flash) => {
    const noKernel = { kernel: undefined, initrd: undefined, commandLine: '', firmware }
    expect(qemuArguments(spec(twoDisks, noKernel), { acceleration: 'tcg', qmp: { fd: 3 } })).toEqual([
      ...ALWAYS,
      ...['-machine', 'q35,usb=off', ...TCG, ...SIZE, ...flash, ...QMP],
      ...[...ROOT_DRIVE, '-device'],
      'virtio-blk-pci,addr=0x3,id=name-root,drive=name-root-file,serial=root,bootindex=48',
      ...[...DATA_DRIVE, '-device'],
      'virtio-blk-pci,addr=0x5,id=name-data,drive=name-data-file,serial=data,bootindex=80',
    ])
  })

  it.each([
    ['tcg', '/vmlinux'],
    ['kvm', '/k'],
  ] as const)('starts the unpacked kernel of an emulated guest alone: %s', (acceleration, kernel) => {
    const words = qemuArguments(spec([], { vmlinux: '/vmlinux' }), { acceleration, qmp: { fd: 3 } })
    expect(words[words.indexOf('-kernel') + 1]).toBe(kernel)
  })

  it('leaves room for CPUs and memory', () => {
    const vm = spec([], { room })
    expect(qemuArguments(vm, { acceleration: 'tcg', qmp: { fd: 3 } })).toEqual([
      ...ALWAYS,
      ...[
        '-machine',
        'q35,usb=off,nvdimm=on',
        ...TCG.slice(0, -1),
        'max,erms=off,la57=off,smap=off,hypervisor=off',
        '-smbios',
        'type=1,serial=VMware-0',
        '-smp',
        '2,maxcpus=3',
        '-m',
        '512M,slots=4,maxmem=1536M',
      ],
      ...[...BOOT, ...QMP],
    ])
  })

  it('shows KVM as it is to a guest with room for CPUs', () => {
    const words = qemuArguments(spec([], { room }), { acceleration: 'kvm', qmp: { fd: 3 } })
    expect(words).toEqual(expect.arrayContaining(['kvm', 'host', '2,maxcpus=3']))
    expect(words).not.toContain('-smbios')
  })

  it.each([
    [{}, 'q35,usb=off,nvdimm=on', '512M,slots=1,maxmem=768M'],
    [{ room }, 'q35,usb=off,nvdimm=on', '512M,slots=5,maxmem=1792M'],
  ])('leaves room for persistent memory too: %j', (overrides, machine, memory) => {
    const nvdimm: Parts = [
      [
        'root',
        { kind: 'nvdimm', sizeBytes: 130 << 20, backend: specKey('root-file') },
        { kind: 'file', path: '/root.img', access: 'read-only' },
      ],
    ]
    const words = qemuArguments(spec(nvdimm, overrides), { acceleration: 'tcg', qmp: { fd: 3 } })
    expect(words).toEqual(expect.arrayContaining(['-machine', machine, '-m', memory]))
  })

  it('makes a pc with KVM', () => {
    const vm = spec(twoDisks.slice(0, 1), { machine: 'pc' })
    expect(qemuArguments(vm, { acceleration: 'kvm', qmp: { fd: 3 } })).toEqual([
      ...ALWAYS,
      ...['-machine', 'pc,usb=off', '-accel', 'kvm', '-cpu', 'host', ...SIZE],
      ...[...bootBy(board.commandLine), ...QMP],
      ...[...ROOT_DRIVE, '-device', 'virtio-blk-pci,addr=0x3,id=name-root,drive=name-root-file,serial=root'],
    ])
  })

  it('puts the disks of microvm on virtio-mmio in their order', () => {
    const vm = spec(twoDisks, { machine: 'microvm', initrd: undefined })
    expect(qemuArguments(vm, { acceleration: 'tcg', qmp: { fd: 3 } })).toEqual([
      ...ALWAYS,
      ...['-machine', 'microvm,acpi=on,rtc=on,pit=on,pic=on,isa-serial=on', ...TCG, ...SIZE],
      ...['-kernel', '/k', '-append', EMULATED_LINE, ...QMP],
      ...[...ROOT_DRIVE, '-device', 'virtio-blk-device,id=name-root,drive=name-root-file,serial=root'],
      ...[...DATA_DRIVE, '-device', 'virtio-blk-device,id=name-data,drive=name-data-file,serial=data'],
    ])
  })

  it.each([
    [
      'an emulated microvm',
      'microvm',
      'tcg',
      2_445_432,
      '… tsc_early_khz=2445432 console=ttyS0 root=/dev/vda',
    ],
    ['an emulated microvm of an unknown rate', 'microvm', 'tcg', undefined, EMULATED_LINE],
    ['a microvm with KVM', 'microvm', 'kvm', 2_445_432, board.commandLine],
    ['an emulated q35', 'q35', 'tcg', 2_445_432, EMULATED_LINE],
  ] as const)('gives the kernel of %s its parameters', (_name, machine, acceleration, tscKhz, line) => {
    const words = qemuArguments(spec([], { machine }), { acceleration, qmp: { fd: 3 }, tscKhz })
    expect(words[words.indexOf('-append') + 1]).toBe(line.replace('…', EMULATED))
  })

  it('shares the memory with a vhost-user daemon', () => {
    const vsock: Parts = [
      [
        'link',
        { kind: 'vsock', slot: 4, cid: 3, backend: specKey('daemon') },
        { kind: 'vhost-user', socket: '/run/v.sock' },
      ],
    ]
    expect(qemuArguments(spec(vsock), { acceleration: 'tcg', qmp: { fd: 3 } })).toEqual([
      ...ALWAYS,
      ...['-machine', 'q35,usb=off,memory-backend=memory', ...TCG, ...SIZE],
      ...['-object', 'memory-backend-memfd,id=memory,size=512M,share=on', ...BOOT, ...QMP],
      ...['-chardev', 'socket,id=name-daemon,path=/run/v.sock'],
      ...['-device', 'vhost-user-vsock-pci,addr=0x4,id=name-link,chardev=name-daemon'],
    ])
  })

  const key = specKey('b')
  const uuid = '0b7e4a52-9c7e-4a63-8f3e-2f3f5d6a7b8c'
  it.each<[string, string, Device, Backend | undefined, readonly string[]]>([
    [
      'a vhost-vsock device',
      'link',
      { kind: 'vsock', slot: 4, cid: 77, backend: key },
      { kind: 'vhost-vsock' },
      ['-device', 'vhost-vsock-pci,addr=0x4,id=name-link,guest-cid=77'],
    ],
    [
      'an NVMe disk',
      'root',
      { kind: 'disk', interface: 'nvme', slot: 3, serial: 'root', backend: key },
      { kind: 'file', path: '/r', access: 'read-only' },
      [
        ...['-blockdev', 'driver=file,node-name=name-b.a,filename=/r,read-only=on'],
        ...['-blockdev', 'driver=raw,node-name=name-b,file=name-b.a,read-only=on'],
        ...['-device', 'nvme,addr=0x3,id=name-root,drive=name-b,serial=root'],
      ],
    ],
    [
      'a card on the user network with a forwarded port',
      uuid,
      { kind: 'nic', slot: 10, mac: '52:54:00:00:00:02', backend: key },
      { kind: 'user-network', forwards: [{ hostPort: 40_000, guestPort: 1024 }] },
      [
        ...['-netdev', 'user,id=name-b,hostfwd=tcp:127.0.0.1:40000-:1024'],
        ...['-device', `virtio-net-pci,addr=0xa,id=uuid-${uuid},netdev=name-b,mac=52:54:00:00:00:02`],
      ],
    ],
    [
      'a card on a tap interface',
      'nic',
      { kind: 'nic', slot: 10, mac: '52:54:00:00:00:02', backend: key },
      { kind: 'tap', interfaceName: 'tap0' },
      [
        ...['-netdev', 'tap,id=name-b,ifname=tap0,script=no,downscript=no'],
        ...['-device', 'virtio-net-pci,addr=0xa,id=name-nic,netdev=name-b,mac=52:54:00:00:00:02'],
      ],
    ],
    [
      'a serial console',
      'console',
      { kind: 'serial', backend: key },
      { kind: 'console' },
      ['-chardev', 'stdio,id=name-b,signal=off', '-serial', 'chardev:name-b'],
    ],
    [
      'a virtio console',
      'console',
      { kind: 'virtio-console', slot: 2, backend: key },
      { kind: 'console' },
      [
        ...['-chardev', 'stdio,id=name-b,signal=off'],
        ...['-device', 'virtio-serial-pci,addr=0x2,id=name-console'],
        ...['-device', 'virtconsole,bus=name-console.0,chardev=name-b'],
      ],
    ],
    [
      'persistent memory',
      'root',
      { kind: 'nvdimm', sizeBytes: 4 << 20, backend: key },
      { kind: 'file', path: '/a,b', access: 'read-only' },
      [
        '-object',
        'memory-backend-file,id=name-b,mem-path=/a,,b,size=4194304,share=on,readonly=on',
        ...['-device', 'nvdimm,id=name-root,memdev=name-b,unarmed=on'],
      ],
    ],
    [
      'a firmware item',
      'metadata',
      { kind: 'fw-cfg', name: 'opt/com.example/settings', backend: key },
      { kind: 'content', path: '/m' },
      ['-fw_cfg', 'name=opt/com.example/settings,file=/m'],
    ],
    [
      'a shared folder',
      'share',
      { kind: 'share', slot: 6, tag: 'kataShared', backend: key },
      { kind: 'vhost-user', socket: '/v.sock' },
      [
        ...['-chardev', 'socket,id=name-b,path=/v.sock'],
        ...['-device', 'vhost-user-fs-pci,addr=0x6,id=name-share,chardev=name-b,tag=kataShared'],
      ],
    ],
    [
      'a folder that QEMU serves itself',
      'share',
      { kind: 'share', slot: 6, tag: 'kataShared', backend: key },
      { kind: 'folder', path: '/a,b' },
      [
        ...['-fsdev', 'local,id=name-b,path=/a,,b,security_model=passthrough'],
        ...['-device', 'virtio-9p-pci,addr=0x6,id=name-share,fsdev=name-b,mount_tag=kataShared'],
      ],
    ],
    [
      'a bridge',
      'bridge',
      { kind: 'pci-bridge', slot: 2 },
      undefined,
      ['-device', 'pci-bridge,id=name-bridge,addr=0x2,chassis_nr=2'],
    ],
  ])('makes %s', (_name, deviceKey, device, backend, expected) => {
    const vm = spec([[deviceKey, device, backend]])
    expect(qemuArguments(vm, { acceleration: 'tcg', qmp: { fd: 3 } }).slice(-expected.length)).toEqual(
      expected,
    )
  })

  const wordsFor = (parts: Parts, host: Partial<QemuHost> = {}, overrides: Partial<Board> = {}) =>
    qemuArguments(spec(parts, overrides), { acceleration: 'tcg', qmp: { fd: 3 }, ...host })

  it('makes a socket for QMP that a daemon can connect to again', () => {
    expect(wordsFor([], { qmp: { socket: '/run/a,b' } })).toEqual(
      expect.arrayContaining(['-chardev', 'socket,id=qmp,path=/run/a,,b,server=on,wait=off']),
    )
  })

  it('starts a paused guest', () => {
    expect(wordsFor([], { isPaused: true })).toContain('-S')
    expect(wordsFor([])).not.toContain('-S')
  })

  it.each([
    ['pc-q35-7.2', ['-device', 'pvpanic-pci,id=pvpanic,addr=0x1']],
    ['pc-i440fx-7.2', ['-device', 'pvpanic,id=pvpanic']],
    ['microvm', ['-mon', 'qmp,mode=control']],
  ] as const)('lets a guest of %s reboot, and tells of its panics', (machine, last) => {
    const words = wordsFor([], { isKept: true }, { machine })
    expect(words).not.toContain('-no-reboot')
    expect(words.slice(-last.length)).toEqual(last)
  })

  it('gives a vmgenid device the id of the run', () => {
    const generationId = 'a1b2c3d4-0000-4000-8000-000000000001'
    const board = { generationId: true }
    expect(wordsFor([], { generationId }, board)).toContain(`vmgenid,id=vmgenid,guid=${generationId}`)
    expect(wordsFor([], {}, board)).toContain('vmgenid,id=vmgenid,guid=auto')
    expect(wordsFor([], { generationId }).join(' ')).not.toContain('vmgenid')
  })

  it.each([
    ['pc-q35-7.2', 'pc-q35-7.2,usb=off'],
    ['pc-i440fx-7.2', 'pc-i440fx-7.2,usb=off'],
  ] as const)('names the version of %s', (machine, option) => {
    expect(wordsFor([], {}, { machine })).toContain(option)
  })

  const nic = { kind: 'nic', slot: 5, mac: '52:54:00:00:00:02', backend: key } as const
  const sockets = new Map([[key, '/run/s,1']])
  it.each<[string, Parts, readonly string[]]>([
    [
      'a card on passt',
      [['n', nic, { kind: 'passt' }]],
      [
        ...['-netdev', 'stream,id=name-b,addr.type=unix,addr.path=/run/s,,1'],
        ...['-device', 'virtio-net-pci,addr=0x5,id=name-n,netdev=name-b,mac=52:54:00:00:00:02'],
      ],
    ],
    [
      'a replaceable card behind a hub',
      [['n', { ...nic, replaceable: true }, { kind: 'tap', interfaceName: 'tap0', bridge: 'br0' }]],
      [
        ...['-netdev', 'tap,id=name-b.net,ifname=tap0,script=no,downscript=no'],
        ...['-netdev', 'hubport,id=name-b.port,hubid=80,netdev=name-b.net'],
        ...['-netdev', 'hubport,id=name-b,hubid=80'],
        ...['-device', 'virtio-net-pci,addr=0x5,id=name-n,netdev=name-b,mac=52:54:00:00:00:02'],
      ],
    ],
    [
      'a device whose context id the daemon has chosen',
      [['v', { kind: 'vsock', slot: 4, cid: 0, backend: key }, { kind: 'vhost-vsock' }]],
      ['-device', 'vhost-vsock-pci,addr=0x4,id=name-v,guest-cid=99'],
    ],
    [
      'a device below the vsock daemon',
      [['v', { kind: 'vsock', slot: 4, cid: 0, backend: key }, { kind: 'vsock-daemon' }]],
      [
        ...['-chardev', 'socket,id=name-b,path=/run/s,,1'],
        ...['-device', 'vhost-user-vsock-pci,addr=0x4,id=name-v,chardev=name-b'],
      ],
    ],
    [
      'a folder of virtiofsd',
      [['s', { kind: 'share', slot: 4, tag: 't', backend: key }, { kind: 'virtiofsd', path: '/x' }]],
      [
        ...['-chardev', 'socket,id=name-b,path=/run/s,,1'],
        ...['-device', 'vhost-user-fs-pci,addr=0x4,id=name-s,chardev=name-b,tag=t'],
      ],
    ],
    [
      'root ports without I/O space',
      [
        ['q', { kind: 'root-port', slot: 6, func: 2 }],
        ['p', { kind: 'root-port', slot: 6 }],
      ],
      [
        '-device',
        'pcie-root-port,id=name-p,bus=pcie.0,addr=0x6.0,multifunction=on,chassis=48,slot=48,io-reserve=0,bus-reserve=1',
        '-device',
        'pcie-root-port,id=name-q,bus=pcie.0,addr=0x6.2,multifunction=on,chassis=50,slot=50,io-reserve=0,bus-reserve=1',
      ],
    ],
    [
      'a disk in a root port, whatever their order',
      [
        [
          'd',
          { kind: 'disk', slot: 0, port: specKey('p'), serial: 'd', backend: key },
          { kind: 'file', path: '/dev/x', access: 'read-write' },
        ],
        ['p', { kind: 'root-port', slot: 6 }],
      ],
      [
        ...[
          '-device',
          'pcie-root-port,id=name-p,bus=pcie.0,addr=0x6.0,multifunction=on,chassis=48,slot=48,io-reserve=0,bus-reserve=1',
        ],
        ...['-blockdev', 'driver=host_device,node-name=name-b.a,filename=/dev/x'],
        ...['-blockdev', 'driver=raw,node-name=name-b,file=name-b.a'],
        ...['-device', 'virtio-blk-pci,bus=name-p,addr=0x0,id=name-d,drive=name-b,serial=d'],
      ],
    ],
  ])('makes %s', (_name, parts, expected) => {
    const words = wordsFor(parts, { sockets, cid: 99, blockDevices: new Set(['/dev/x']) })
    expect(words.slice(-expected.length)).toEqual(expected)
  })

  it.each(['vsock-daemon', 'virtiofsd', 'vhost-user'] as const)('shares the memory with %s', (kind) => {
    const backend: Backend =
      kind === 'vsock-daemon'
        ? { kind }
        : kind === 'virtiofsd'
          ? { kind, path: '/x' }
          : { kind, socket: '/s' }
    const device: Device =
      kind === 'virtiofsd'
        ? { kind: 'share', slot: 4, tag: 't', backend: key }
        : { kind: 'vsock', slot: 4, cid: 3, backend: key }
    const words = wordsFor([['d', device, backend]], { sockets })
    expect(words).toContain('memory-backend-memfd,id=memory,size=512M,share=on')
  })

  it('begins with memory that was saved, which is copied on write', () => {
    const memory = { path: '/a,b' }
    const host = { acceleration: 'tcg', qmp: { fd: 3 }, isKept: true } as const
    const words = qemuArguments({ ...spec([]), memory }, host)
    expect(words).toContain('memory-backend-file,id=memory,size=512M,mem-path=/a,,b,share=off')
    expect(words).toContain('q35,usb=off,memory-backend=memory')
    expect(words.filter((word) => word.startsWith('memory-backend'))).toHaveLength(1)
  })

  it('shares the memory with daemons to come', () => {
    const words = wordsFor([], { isKept: true })
    expect(words).toContain('memory-backend-memfd,id=memory,size=512M,share=on')
    expect(words).toContain('q35,usb=off,memory-backend=memory')
  })
})
