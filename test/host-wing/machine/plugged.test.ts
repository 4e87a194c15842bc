import { describe, expect, it } from 'vitest'
import { domainXml } from '../../../src/host/machine/libvirt/domain-xml.ts'
import {
  canLeave,
  withoutMachineDevices,
  withPlugged,
  withPlugsOf,
  withSource,
  withVsock,
} from '../../../src/host/machine/plugged.ts'
import { asSpec } from '../../../src/host/qemu/machine/as-spec.ts'
import { machineArguments } from '../../../src/host/qemu/machine/machine-arguments.ts'
import { expanded, pciPlace } from '../../support/host-wing/expansion.ts'
import { nullBackends } from '../../support/wing/fakes/null-backends.ts'

const MEMORY = { memory: 64, storage: [{ source: 'a' }, { source: 'b' }] }
const plugged = (machine: ReturnType<typeof expanded>, key: string) =>
  withPlugged(machine, { storage: [{ source: key }] }, key)

describe('a device that is plugged in', () => {
  it.each([
    ['pc-q35-7.2', '00:1f.0'],
    ['pc-q35-7.2', '00:09.0'],
    ['pc-q35-7.2', '01:05.0'],
    ['pc-q35-7.2', '77:00.0'],
    ['pc-i440fx-7.2', '00:00.0'],
    ['pc-i440fx-7.2', '00:09.1'],
  ])('on %s is refused at %s, where no running machine takes it', (machine, address) => {
    const features = { storage: [{ source: 'more', address }] }
    expect(() => withPlugged(expanded({ ...MEMORY, machine }), features, 'more')).toThrow(
      `features.storage[0].address: ${address}: want `,
    )
  })

  it('is taken at a free place', () => {
    const machine = expanded({ ...MEMORY, machine: 'pc' })
    const { devices } = withPlugged(machine, { storage: [{ source: 'more', address: '00:1e.0' }] }, 'more')
    expect(devices.more?.address).toEqual({ type: 'pci', bus: 0, slot: 30, function: 0 })
  })

  it('is refused with the serial of another by its own field', () => {
    const machine = expanded({ memory: 64, storage: [{ source: 'a', serial: 'x' }] })
    expect(() => withPlugged(machine, { storage: [{ source: 'more', serial: 'x' }] }, 'more')).toThrow(
      'features.storage[0].serial: serial x: already that of devices.disk0',
    )
  })
})

describe('another name behind a device', () => {
  it('takes the place of a path or nothing, and leaves the rest as it was', () => {
    const machine = expanded({ ...MEMORY, storage: [{ source: 'a', cache: 'none' }, { type: 'cdrom' }] })
    const replaced = withSource(withSource(machine, 'disk0-backend', 'b'), 'cdrom0-backend', 'dvd')
    expect(replaced.backends).toMatchObject({
      'disk0-backend': { kind: 'volume', name: 'b', options: { cache: 'none' }, replaced: true },
      'cdrom0-backend': { kind: 'volume', name: 'dvd', options: { readOnly: true }, replaced: true },
    })
    expect({ ...replaced, backends: machine.backends }).toEqual(machine)
  })

  it.each([
    ['disk9-backend', 'b', 'backend disk9-backend: not found'],
    ['rng0-backend', 'b', 'source: no random has a name in the catalogue, want a disk, card or share'],
    ['disk0-backend', '/srv/b', 'source: "/srv/b", want a name of 1 to 63 letters'],
    ['disk0-backend', '', 'source: "", want a name of 1 to 63 letters'],
  ])('is refused for %s by %j', (backend, source, message) => {
    const machine = expanded({ ...MEMORY, storage: [{ source: 'a' }], rng: true })
    expect(() => withSource(machine, backend, source)).toThrow(message)
  })
})

describe('a CPU that is plugged in', () => {
  const ROOM = { memory: 64, cpu: { present: 1, topology: { sockets: 2, threads: 2 } } }
  const more = (machine: ReturnType<typeof expanded>, ...keys: readonly string[]) =>
    keys.reduce((before, key) => withPlugged(before, { cpu: 1 }, key), machine)
  const places = ({ devices }: ReturnType<typeof expanded>) =>
    Object.entries(devices).flatMap(([key, { kind, properties }]) =>
      kind === 'cpu' ? [[key, properties['socket-id'], properties['thread-id']].join(' ')] : [],
    )

  it('takes the first place that is free', () => {
    const all = more(expanded(ROOM), 'a', 'b', 'c')
    expect(places(all)).toEqual(['a 0 1', 'b 1 0', 'c 1 1'])
    expect(places(more(withoutMachineDevices(all, ['b']), 'd'))).toEqual(['a 0 1', 'c 1 1', 'd 1 0'])
    expect(() => more(all, 'd')).toThrow('no room for another CPU, all 4 are present')
    expect(() => more(expanded({ ...ROOM, storage: [{ source: 'v' }] }), 'disk0')).toThrow(
      'features.cpu: name "disk0": already that of a device',
    )
  })

  it('keeps its place in a machine that is expanded anew, unless that is taken', () => {
    const before = withoutMachineDevices(more(expanded(ROOM), 'a', 'b'), ['a'])
    expect(places(withPlugsOf(expanded(ROOM), before))).toEqual(['b 1 0'])
    const larger = { ...ROOM, cpu: { ...ROOM.cpu, present: 3 } }
    expect(places(withPlugsOf(expanded(larger), before))).toEqual(['b 1 1'])
    expect(() => withPlugsOf(expanded({ memory: 64, cpu: 2 }), before)).toThrow('no room for another CPU')
  })

  it('is one of the CPUs in the words of a specification, of QEMU and of libvirt', () => {
    const machine = more(expanded(ROOM), 'a')
    expect(asSpec(machine, {}).board).toMatchObject({ cpus: 2, room: { cpus: 2 } })
    const words = machineArguments(machine, { acceleration: 'tcg', nowMs: 0, provide: nullBackends('/run') })
    const place = 'socket-id=0,core-id=0,thread-id=1'
    expect(words.join(' ')).toContain(`-device Westmere-x86_64-cpu,id=name-a,${place}`)
    expect(domainXml(machine)).toContain('<vcpu current="2">4</vcpu>')
  })
})

describe('a machine that is expanded anew', () => {
  it('keeps the names that were put behind its devices, and refuses one that the document lacks', () => {
    const of = (cache: string) => expanded({ ...MEMORY, storage: [{ source: 'a', cache }] })
    const before = withSource(of('none'), 'disk0-backend', 'b')
    const next = withPlugsOf(of('unsafe'), before)
    expect(next.backends['disk0-backend']).toMatchObject({ name: 'b', options: { cache: 'unsafe' } })
    expect(() => withPlugsOf(expanded({ memory: 64 }), before)).toThrow(
      'backends.disk0-backend: replaced, and not of the document',
    )
    const plug = withSource(plugged(expanded(MEMORY), 'more'), 'more-backend', 'c')
    expect(withPlugsOf(expanded(MEMORY), plug).backends['more-backend']).toMatchObject({ name: 'c' })
  })

  it('keeps what was plugged in and out', () => {
    const before = withoutMachineDevices(plugged(expanded(MEMORY), 'more'), ['disk1'])
    const next = withPlugsOf(expanded({ ...MEMORY, watchdog: true }), before)
    expect(Object.keys(next.devices)).toContain('watchdog0')
    expect(next.devices.more).toEqual(before.devices.more)
    expect(next.backends['more-backend']).toEqual(before.backends['more-backend'])
    expect([next.devices.disk1, next.backends['disk1-backend']]).toEqual([undefined, undefined])
    expect(withPlugsOf(expanded(MEMORY), next)).toEqual(before)
    const without = withoutMachineDevices(next, ['more'])
    expect(without.unplugged).toEqual(['disk1'])
    expect(withPlugsOf(expanded(MEMORY), without).devices.more).toBeUndefined()
    expect(withPlugsOf(expanded(MEMORY), plugged(without, 'disk1')).devices.disk1).toMatchObject({
      plugged: true,
    })
  })

  it.each(['pc-q35-7.2', 'pc-i440fx-7.2'])(
    'gives a plugged device another place on %s where its own is taken',
    (type) => {
      const of = (count: number) =>
        expanded({
          memory: 64,
          machine: type,
          storage: Array.from({ length: count }, (_, index) => ({ source: `v${index}` })),
        })
      const before = plugged(of(1), 'more')
      const next = withPlugsOf(of(3), before)
      const places = Object.keys(next.devices).flatMap((key) => pciPlace(next, key) ?? [])
      expect(new Set(places).size).toBe(places.length)
      expect(next.devices.more?.address?.type).toBe('pci')
    },
  )

  it('refuses a device that the document has by now', () => {
    expect(() =>
      withPlugsOf(
        expanded({ ...MEMORY, storage: [{ source: 'b', name: 'more' }] }),
        plugged(expanded(MEMORY), 'more'),
      ),
    ).toThrow('devices.more: plugged in, and of the document too')
  })
})

describe('a vsock device that comes back', () => {
  const whole = (type: string, address?: string) =>
    expanded({ ...MEMORY, machine: { type }, vsock: { ...(address !== undefined && { address }) } })
  const left = (address: unknown, cid = 0) => ({ backend: 'vsock0-backend', cid, address })

  it.each([
    ['q35', undefined],
    ['pc', '00:10.0'],
  ])('is at its place on %s', (type, given) => {
    const machine = whole(type, given)
    const { address } = machine.devices.vsock0 ?? {}
    const back = withVsock(withoutMachineDevices(machine, ['vsock0']), 'vsock0', left(address))
    expect(back.devices.vsock0).toMatchObject({ ...machine.devices.vsock0, plugged: true })
    expect(back.backends).toEqual(machine.backends)
  })

  it.each([
    ['taken', { type: 'pci', bus: 0, slot: 3, function: 0 }],
    ['missing', undefined],
    ['not one', { type: 'pci', slot: 'none' }],
  ])('is at a free place when its own is %s', (_, address) => {
    const machine = withoutMachineDevices(whole('pc', '00:10.0'), ['vsock0'])
    expect(pciPlace(withVsock(machine, 'vsock0', left(address)), 'vsock0')).toBe('00:06.0')
  })

  it('is refused with a context id that no guest has, and beside another one', () => {
    const machine = whole('pc')
    const without = withoutMachineDevices(machine, ['vsock0'])
    expect(() => withVsock(without, 'vsock0', left(undefined, 2))).toThrow('devices.vsock0: cid 2')
    expect(() => withVsock(machine, 'other', left(undefined))).toThrow('has a vsock device, vsock0')
  })

  it('can leave a root port, and a slot of its own', () => {
    const shared = expanded({
      machine: { type: 'pc' },
      vsock: { address: '00:10.0' },
      storage: [{ source: 'a', address: '00:10.1' }],
    })
    const places = [whole('q35'), whole('q35', '00:10.0'), whole('pc'), shared]
    expect(places.map((machine) => canLeave(machine, 'vsock0'))).toEqual([true, false, true, false])
  })
})
