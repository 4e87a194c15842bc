import { describe, expect, it } from 'vitest'
import { expanded } from '../../../support/host-wing/expansion.ts'

const refusal = (features: Readonly<Record<string, unknown>>, facts = {}) => {
  try {
    expanded(features, { facts })
  } catch (error) {
    return String(error).replace('AgentError: ', '')
  }
  return 'taken'
}

describe('machine', () => {
  it('has a version, and is q35 by default', () => {
    expect(expanded({}).board.machine).toBe('pc-q35-7.2')
    expect(expanded({ machine: 'pc' }).board.machine).toBe('pc-i440fx-7.2')
    expect(expanded({ machine: { type: 'pc-q35-7.2' } }).board.machine).toBe('pc-q35-7.2')
  })

  it('says of microvm that its hardware is not promised', () => {
    expect(expanded({ machine: 'microvm' }).notes).toEqual([
      'not promised: machine microvm has no versions, so another QEMU may make another one',
    ])
  })

  it('is refused with the machines that there are', () => {
    expect(refusal({ machine: 'pc-q35-9.0' })).toBe(
      'spec.features.machine: "pc-q35-9.0", did you mean "pc-q35-7.2"?',
    )
  })
})

describe('memory', () => {
  it('of one number has room for three times as much', () => {
    expect(expanded({ memory: 4096 }).memory).toEqual({
      ...{ sizeMib: 4096, currentMib: 4096, maximumMib: 16_384, slots: 16 },
    })
  })

  it('keeps what is given', () => {
    const memory = { size: 1024, current: 512, maximum: 2048, slots: 2, hugePages: '2M' }
    expect(expanded({ memory }).memory).toEqual({
      ...{ sizeMib: 1024, currentMib: 512, maximumMib: 2048, slots: 2, hugePages: '2M' },
    })
    expect(expanded({ memory: { size: 1024, slots: 0 } }).memory).toMatchObject({
      maximumMib: 1024,
      slots: 0,
    })
  })

  it('of machine microvm has no room', () => {
    expect(expanded({ machine: 'microvm', memory: 256 }).memory.maximumMib).toBe(256)
    expect(refusal({ machine: 'microvm', memory: { size: 1, maximum: 2 } })).toBe(
      'spec.features.memory.maximum: machine microvm has no room for memory',
    )
  })

  it.each([
    [2 ** 63, 'memory: 9223372036854776000, want MiB, 1 to 16777216'],
    ['4G', 'memory: "4G", want MiB, 1 to 16777216'],
    [{ size: 2, maximum: 1 }, 'memory.maximum: 1: want the size, 2, or more'],
    [{ size: 2, current: 3 }, 'memory.current: 3: want the size, 2, or less'],
    [
      { size: 2, maximum: 4, slots: 0 },
      'memory.slots: 0: memory beyond the size takes slots, want 1 or more',
    ],
    [{ size: 3, hugePages: '2M' }, 'memory.size: 3: want a multiple of 2 MiB, a page of 2M'],
    [{ size: 1025, hugePages: '1G' }, 'memory.size: 1025: want a multiple of 1024 MiB, a page of 1G'],
    [2 ** 20, 'memory.size: 1048576: CPU model Westmere reaches 1007616 MiB with 0 slots'],
    [
      { size: 1, maximum: 2 ** 20 },
      'memory.maximum: 1048576: CPU model Westmere reaches 991232 MiB with 16 slots',
    ],
    [{ sise: 2 }, 'memory.sise: unknown field, did you mean "size"?'],
  ])('refuses %j', (memory, reason) => {
    expect(refusal({ memory })).toBe(`spec.features.${reason}`)
  })
})

describe('cpu', () => {
  it('is one of Westmere by default, with all CPUs in one socket', () => {
    expect(expanded({}).cpu).toEqual({
      ...{ model: 'Westmere', match: 'exact', features: {}, count: 1, present: 1 },
      topology: { sockets: 1, cores: 1, threads: 1 },
    })
    expect(expanded({ machine: 'microvm' }).cpu.model).toBe('Westmere-v1')
    expect(expanded({ cpu: 4 }).cpu.topology).toEqual({ sockets: 1, cores: 4, threads: 1 })
  })

  it('has the count of its topology, and sockets for its count', () => {
    const topology = { sockets: 2, cores: 3, threads: 2 }
    expect(expanded({ cpu: { topology } }).cpu).toMatchObject({ count: 12, topology })
    expect(expanded({ cpu: { topology: { sockets: 127, threads: 2 } } }).cpu.count).toBe(254)
    expect(expanded({ cpu: { count: 8, topology: { cores: 2 } } }).cpu.topology.sockets).toBe(4)
  })

  it('has CPUs of the host for itself, of any pool or of a named one', () => {
    const wished = [true, false, 'fast', { pool: 'fast' }, {}].map((exclusive) =>
      expanded({ cpu: { exclusive } }),
    )
    expect(wished.map(({ cpu }) => cpu.exclusive)).toEqual([
      {},
      undefined,
      { pool: 'fast' },
      { pool: 'fast' },
      {},
    ])
  })

  it('says which models are others elsewhere', () => {
    expect(expanded({ cpu: { model: 'host' } })).toMatchObject({
      cpu: { match: 'host' },
      notes: ['not promised: CPU model host is another on another host'],
    })
  })

  it.each([
    [300, 'cpu: 300, want a whole number, 1 to 255'],
    [{ count: 5, topology: { sockets: 2, cores: 2 } }, 'cpu.topology: 2 × 2 × 1 is 4, want 5 CPUs'],
    [{ topology: { sockets: 255, cores: 2 } }, 'cpu.topology: 255 × 2 × 1 is 510, want 255 CPUs'],
    [{ topology: { sockets: 85, cores: 3 } }, 'cpu.topology: its last CPU has APIC id 338, want at most 254'],
    [{ count: 2, present: 3 }, 'cpu.present: 3: want the count, 2, or less'],
    [{ features: { 'a,b': true } }, 'cpu.features: "a,b": want the name of a CPU feature'],
    [
      { features: { enforce: false } },
      'cpu.features.enforce: a setting of QEMU and no feature of a CPU, want such as aes or avx2',
    ],
    [
      { features: { 'hv-time': true } },
      'cpu.features.hv-time: a setting of QEMU and no feature of a CPU, want such as aes or avx2',
    ],
    [{ model: 'host', match: 'exact' }, 'cpu.match: exact: model host is another on another host'],
    [{ exclusive: '/cpus' }, 'cpu.exclusive: "/cpus", want a name of 1 to 63 letters, digits, _, . or -'],
    [{ exclusive: { cpus: '0' } }, 'cpu.exclusive.cpus: unknown field, want pool'],
    [{ exclusive: true, count: 2, present: 1 }, 'cpu.present: 1: exclusive CPUs are all present, want 2'],
  ])('refuses %j', (cpu, reason) => {
    expect(refusal({ cpu })).toBe(`spec.features.${reason}`)
  })

  it('is refused when this host has no such model', () => {
    expect(refusal({ cpu: { model: 'Westmer' } }, { cpuModels: ['Nehalem', 'Westmere'] })).toBe(
      'spec.features.cpu.model: "Westmer": unknown here, did you mean "Westmere"?',
    )
  })

  it('of machine microvm are all there', () => {
    expect(refusal({ machine: 'microvm', cpu: { count: 2, present: 1 } })).toContain('no room for CPUs')
  })
})

describe('numa', () => {
  it('stays a wish without a host', () => {
    expect(expanded({ numa: 'match-host' }).numa).toEqual({ matchHost: true, cells: [] })
  })

  it('has a cell for each node of the host', () => {
    const facts = { numaNodes: [[0, 1], [2, 3], [4]] }
    const { numa } = expanded({ numa: 'match-host', cpu: 4, memory: 1000 }, { facts })
    expect(numa.cells).toEqual([
      { cpus: [0], memoryMib: 333 },
      { cpus: [1], memoryMib: 333 },
      { cpus: [2, 3], memoryMib: 334 },
    ])
  })

  it('gives the CPUs that no cell names to the first', () => {
    const cells = [
      { cpus: '1', memory: 100 },
      { cpus: [3], memory: 412 },
    ]
    expect(expanded({ cpu: 4, numa: { cells } }).numa.cells.map(({ cpus }) => cpus)).toEqual([[0, 1, 2], [3]])
  })

  it.each([
    [[{ cpus: '0-4', memory: 512 }], 'cells[0].cpus: 4: want 0 to 3'],
    [[{ cpus: '0,0', memory: 512 }], 'cells[0].cpus: 0: given twice'],
    [[{ cpus: '3-1', memory: 512 }], 'cells[0].cpus: 3-1: want 0 to 254, the lower number first'],
    [[{ cpus: '0', memory: 511 }], 'cells: 511 MiB together, want the size of the memory, 512'],
  ])('refuses %j', (cells, reason) => {
    expect(refusal({ cpu: 4, numa: { cells } })).toBe(`spec.features.numa.${reason}`)
  })

  it('refuses cells beside those of the host', () => {
    expect(refusal({ numa: { matchHost: true, cells: [{ cpus: '0', memory: 512 }] } })).toBe(
      'spec.features.numa.matchHost: true: the host decides the cells, want no cells',
    )
  })
})

describe('firmware', () => {
  it('is BIOS; UEFI has a file for its variables', () => {
    expect(expanded({}).firmware).toEqual({ type: 'bios', secureBoot: false })
    const { backends, firmware } = expanded({ firmware: { type: 'uefi', secureBoot: true } })
    expect(firmware).toEqual({ type: 'uefi', secureBoot: true, variables: 'firmware-variables' })
    expect(backends['firmware-variables']).toEqual({ kind: 'variables', options: {} })
  })

  it('boots a kernel of the catalogue', () => {
    const firmware = { kernel: 'debian-13', commandLine: 'console=ttyS0' }
    expect(expanded({ firmware }).firmware).toMatchObject({ type: 'bios', ...firmware })
  })

  it.each([
    [{ firmware: 'uefi', machine: 'microvm' }, 'type: machine microvm has no uefi, want bios'],
    [{ firmware: { secureBoot: true } }, 'secureBoot: wants uefi and machine q35'],
    [{ firmware: { initrd: 'a' } }, 'initrd: wants a kernel'],
    [{ firmware: { kernel: '/boot/vmlinuz' } }, 'kernel: "/boot/vmlinuz", want a name'],
  ])('refuses %j', (features, reason) => {
    expect(refusal(features)).toContain(`spec.features.firmware.${reason}`)
  })
})

describe('smbios', () => {
  it('has the words that are given, and the UUID of the machine', () => {
    const uuid = '11111111-FEED-DEAD-BEEF-111111111111'
    const { smbios, uuid: own } = expanded({ smbios: { product: 'KubeVirt Node', uuid } })
    expect(smbios).toEqual({ product: 'KubeVirt Node' })
    expect(own).toBe(uuid.toLowerCase())
  })

  it('refuses what QEMU would take apart', () => {
    expect(refusal({ smbios: { product: 'a,b' } })).toContain('spec.features.smbios.product: "a,b", want')
  })
})

describe('iothreads', () => {
  it('serve the disks in turn', () => {
    const storage = ['a', 'b', 'c'].map((source) => ({ source }))
    const { devices } = expanded({ iothreads: 2, storage })
    const threads = Object.values(devices).flatMap(({ kind, properties }) =>
      kind === 'disk' ? [properties.iothread] : [],
    )
    expect(threads).toEqual(['iothread0', 'iothread1', 'iothread0'])
  })

  it('serve a controller of SCSI', () => {
    const { devices } = expanded({ iothreads: { count: 1 }, controllers: [{ type: 'scsi' }] })
    expect(devices.scsi0?.properties).toEqual({ iothread: 'iothread0' })
  })

  it('are at most 64', () => {
    expect(refusal({ iothreads: 65 })).toBe('spec.features.iothreads: 65, want a whole number, 0 to 64')
  })
})

describe('system', () => {
  it('of Windows has the timers, the interfaces and the channel that Windows knows', () => {
    const { clock, devices, hyperv } = expanded({ system: { type: 'windows', version: 10, arch: 'x86_64' } })
    expect(clock.timers).toEqual({ rtc: 'catchup', pit: 'delay', hpet: false, hypervclock: true })
    expect(clock.basis).toBe('localtime')
    expect(hyperv).toEqual({ relaxed: true, vapic: true, spinlockRetries: 8191 })
    expect(devices.channel0?.properties).toEqual({ name: 'org.qemu.guest_agent.0' })
  })

  it('of Linux has neither Hyper-V nor a channel', () => {
    const { clock, devices, hyperv } = expanded({ system: 'linux' })
    expect([clock.basis, clock.timers.hypervclock]).toEqual(['utc', false])
    expect(hyperv).toBeUndefined()
    expect(devices.channel0).toBeUndefined()
  })

  it('keeps the adjustment of the clock', () => {
    expect(expanded({ system: { clock: { adjustment: 3600 } } }).clock.adjustmentSeconds).toBe(3600)
  })

  it('says what an emulated machine does not give, or refuses it', () => {
    const facts = { acceleration: 'tcg' } as const
    expect(expanded({ system: 'windows' }, { facts }).notes).toEqual([
      'not given here: PIT tick policy (no KVM)',
      'not given here: hyperv (no KVM)',
    ])
    const clock = { timers: { hypervclock: true } }
    expect(expanded({ system: { type: 'linux', clock } }, { facts }).notes).toContain(
      'not given here: hyperv (no KVM)',
    )
    expect(refusal({ system: { type: 'windows', hyperv: { require: true } } }, facts)).toBe(
      'spec.features.system.hyperv: not given here: no KVM',
    )
    expect(refusal({ system: { clock: { timers: { require: true } } } }, facts)).toBe(
      'spec.features.system.clock.timers: not given here: PIT tick policy (no KVM)',
    )
    expect(expanded({ system: 'windows' }, { facts: { acceleration: 'kvm' } }).notes).toEqual([])
  })

  it.each([
    ['windows', 11, 'version: 11: wants a TPM, which is not built yet'],
    ['windows', 'XP', 'version: XP: want 7, 8, 8.1, 10, 2008, 2012, 2016, 2019, 2022, 2025'],
    ['widnows', 10, 'type: "widnows", did you mean "windows"?'],
  ])('refuses %s %s', (type, version, reason) => {
    expect(refusal({ system: { type, version } })).toBe(`spec.features.system.${reason}`)
  })
})
