import { describe, expect, it } from 'vitest'
import {
  Backend,
  Device,
  Specification,
  Specification_DevicesEntry,
} from '../../../src/gen/microvm/instance/v1/instance.ts'
import { backendFromProto, deviceFromProto, specFromProto } from '../../../src/host/spec/from-proto.ts'
import { specToProto } from '../../../src/host/spec/to-proto.ts'
import { MACHINE_PARTS, specOf } from '../../support/host/specs.ts'

const board = { machine: 'pc-q35-7.2', memoryMib: 1n, cpus: 1, kernel: '/k' }
const disk = { backend: 'b', slot: 3, disk: { serial: 's' } }
const file = { file: { path: '/f', access: 1 } } as const

/** As a server gets it. */
function received(message: Parameters<typeof Specification.fromPartial>[0]): Specification {
  return Specification.decode(Specification.encode(Specification.fromPartial(message)).finish())
}

describe('specFromProto', () => {
  it.each(['pc-q35-7.2', 'pc-i440fx-7.2', 'microvm'] as const)(
    'reads what specToProto made: %s',
    (machine) => {
      const room = machine === 'microvm' ? undefined : { cpus: 1, memoryMib: 1024, memorySlots: 4 }
      const spec = {
        ...specOf(MACHINE_PARTS[machine], { machine, room, vmlinux: '/v' }),
        rebootLimit: { count: 0, seconds: 1 },
        limits: { memoryMib: 2048, cpuMilli: 1500, tasks: 0 },
      }
      expect(specFromProto(received(specToProto(spec)))).toMatchObject(spec)
    },
  )

  it('finds a component by any notation of its UUID', () => {
    const uuid = '0b7e4a52-9c7e-4a63-8f3e-2f3f5d6a7b8c'
    const spec = specFromProto(
      received({
        board,
        devices: { d: { ...disk, backend: `urn:uuid:${uuid}` } },
        backends: { [uuid.toUpperCase()]: file },
      }),
    )
    expect(Object.keys(spec.backends)).toEqual([uuid])
    expect(spec.devices).toMatchObject({ d: { backend: uuid } })
  })

  const uuid = '0b7e4a52-9c7e-4a63-8f3e-2f3f5d6a7b8c'
  it.each<[string, Parameters<typeof Specification.fromPartial>[0], string]>([
    ['no board', {}, 'board: missing'],
    ['no machine', { board: { ...board, machine: '' } }, 'board.machine: missing, want pc-q35-7.2'],
    [
      'another machine',
      { board: { ...board, machine: 'pc-q35-8.0' } },
      'board.machine: "pc-q35-8.0": unknown',
    ],
    ['no memory', { board: { ...board, memoryMib: 0n } }, 'board.memory_mib: 0: want 1 to'],
    [
      '2^63 MiB',
      { board: { ...board, memoryMib: 1n << 63n } },
      'board.memory_mib: 9223372036854776000: want',
    ],
    ['no CPU', { board: { ...board, cpus: 0 } }, 'board.cpus: 0: want 1 to 255'],
    ['no kernel', { board: { ...board, kernel: '' } }, 'board.kernel: missing'],
    ['a device of no kind', { board, devices: { d: {} } }, 'devices.d: no kind, want one of disk, '],
    [
      'a device of two kinds',
      { board, devices: { d: { ...disk, share: { tag: 't' } } } },
      'devices.d: disk, share: want one kind',
    ],
    ['no backend', { board, devices: { d: { ...disk, backend: '' } } }, 'devices.d.backend: missing'],
    [
      'no slot',
      { board, devices: { d: { ...disk, slot: 0 } }, backends: { b: file } },
      'devices.d.slot: missing',
    ],
    [
      'a slot of a serial port',
      { board, devices: { d: { backend: 'b', slot: 3, serial: {} } } },
      'devices.d.slot: not possible for serial',
    ],
    [
      'a backend of a root port',
      { board, devices: { d: { backend: 'b', slot: 3, rootPort: {} } } },
      'devices.d.backend: not possible for root_port',
    ],
    [
      'a port of a root port',
      { board, devices: { d: { port: 'p', rootPort: {} } } },
      'devices.d.port: not possible for root_port',
    ],
    ['a backend of no kind', { board, backends: { b: {} } }, 'backends.b: no kind, want one of file, '],
    [
      'no access',
      { board, backends: { b: { file: { path: '/f' } } } },
      'backends.b.file.access: missing, want READ_ONLY',
    ],
    [
      'an unknown access',
      // A newer client may send it.
      { board, backends: { b: { file: { path: '/f', access: 9 as 1 } } } },
      'backends.b.file.access: unknown, want READ_ONLY',
    ],
    [
      'two notations of one UUID',
      { board, devices: { [uuid]: disk, [uuid.toUpperCase()]: disk } },
      `devices.${uuid.toUpperCase()}: same key as devices.${uuid}`,
    ],
    [
      'a key with a line break',
      { board, devices: { 'a\nb': disk } },
      'devices: key "a\\nb": has a control character',
    ],
    [
      'a backend key with "/"',
      { board, devices: { d: { ...disk, backend: 'a/b' } } },
      'devices.d.backend: key "a/b": has a control character or "/"',
    ],
    [
      'a subnet of no address',
      { board, backends: { b: { userNetwork: { subnets: [{ network: 'x' }] } } } },
      'backends.b.user_network.subnets[0].network: "x": want an IP address',
    ],
    [
      '4 MiB',
      { board: { ...board, commandLine: 'x'.repeat(4 << 20) } },
      /specification: 4194\d+ bytes, want at most 1048576/,
    ],
  ] as [string, Parameters<typeof Specification.fromPartial>[0], string][])(
    'refuses %s',
    (_name, message, sentence) => {
      expect(() => specFromProto(received(message))).toThrow(sentence)
    },
  )

  it('refuses the key __proto__, which a decoded message cannot show', () => {
    const entry = Specification_DevicesEntry.encode({
      key: '__proto__',
      value: Device.fromPartial(disk),
    }).finish()
    const message = Specification.encode(Specification.fromPartial({ board })).finish()
    const bytes = Buffer.concat([message, Buffer.from([(2 << 3) | 2, entry.length]), entry])
    expect(() => specFromProto(Specification.decode(bytes))).toThrow('devices: key "__proto__": reserved')
  })

  it('refuses 65,536 components before it looks at them', () => {
    const devices = Object.fromEntries(Array.from({ length: 65_536 }, (_, index) => [`d${index}`, disk]))
    const message = received({ board, devices })
    expect(() => specFromProto(message)).toThrow('specification: 65536 devices and backends')
  })
})

describe('deviceFromProto and backendFromProto', () => {
  it('read the parts of a call that plugs a device', () => {
    expect(deviceFromProto('d', Device.fromPartial({ ...disk, slot: 0, port: 'p' }))).toMatchObject({
      kind: 'disk',
      port: 'p',
      slot: 0,
    })
    expect(backendFromProto('b', Backend.fromPartial(file))).toEqual({
      kind: 'file',
      path: '/f',
      access: 'read-only',
    })
  })
})
