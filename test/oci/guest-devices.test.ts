import { describe, expect, it } from 'vitest'
import { Linux, LinuxDevice, LinuxResources } from '../../src/gen/oci.ts'
import { type DeviceUpdate, withGuestDevices } from '../../src/oci/guest-devices.ts'
import { printJson } from '../../src/oci/json.ts'
import { resourcesConfig } from '../../src/oci/runtime-config.ts'

const RULES = [
  { Allow: false, Type: 'a', Access: 'rwm' },
  { Allow: true, Type: 'b', Major: 8n, Minor: 0n, Access: 'r' },
  { Allow: true, Type: 'b', Major: 8n, Minor: 16n, Access: 'rw' },
  { Allow: true, Type: 'c', Major: 8n, Minor: 0n, Access: 'm' },
]

const linux = Linux.fromPartial({
  Devices: [
    { Path: '/dev/a', Type: 'b', Major: 8n, Minor: 0n, FileMode: 0o660, UID: 3, GID: 4 },
    { Path: '/dev/b', Type: 'b', Major: 8n, Minor: 16n },
    { Path: '/dev/null', Type: 'c', Major: 1n, Minor: 3n },
  ],
  Resources: { Devices: RULES },
})

const update = (containerPath: string, minor: number, changes: Partial<DeviceUpdate> = {}): DeviceUpdate => ({
  containerPath,
  type: 'b',
  major: 8,
  minor,
  ...changes,
})

describe('withGuestDevices', () => {
  it("replaces a device's numbers by those of the guest and keeps the rest", () => {
    const { Devices } = apply([update('/dev/a', 32)])
    expect(Devices[0]).toMatchObject({
      Path: '/dev/a',
      Major: 8n,
      Minor: 32n,
      FileMode: 0o660,
      UID: 3,
      GID: 4,
    })
    expect(Devices.slice(1)).toEqual(linux.Devices.slice(1))
  })

  it('moves a device to the path of its group', () => {
    const { Devices } = apply([update('/dev/a', 5, { type: 'c', major: 240, newPath: '/dev/vfio/5' })])
    expect(Devices[0]).toMatchObject({ Path: '/dev/vfio/5', Type: 'c', Major: 240n, Minor: 5n })
  })

  it("matches rules by the host's numbers, even when another device has the guest's numbers", () => {
    const { Resources } = apply([update('/dev/a', 16), update('/dev/b', 32)])
    expect(
      Resources?.Devices.map(({ Type, Major, Minor, Access }) => `${Type} ${Major}:${Minor} ${Access}`),
    ).toEqual(['a -1:-1 rwm', 'b 8:16 r', 'b 8:32 rw', 'c 8:-1 m', 'b 8:16 rwm', 'b 8:32 rwm'])
  })

  it('allows the devices even when the spec has no resources', () => {
    const { Resources } = withGuestDevices(
      { ...linux, Resources: undefined },
      { updates: [update('/dev/a', 32)], added: [] },
    )
    expect(Resources?.Devices).toEqual([{ Allow: true, Type: 'b', Major: 8n, Minor: 32n, Access: 'rwm' }])
  })

  it('adds devices that the spec does not name', () => {
    const added = [{ path: '/dev/infiniband/uverbs0', type: 'c', major: 231, minor: 192 } as const]
    const { Devices, Resources } = withGuestDevices(linux, { updates: [], added })
    expect(Devices.at(-1)).toMatchObject({
      Path: '/dev/infiniband/uverbs0',
      Type: 'c',
      Major: 231n,
      Minor: 192n,
    })
    expect(Resources?.Devices.at(-1)).toMatchObject({ Allow: true, Major: 231n, Minor: 192n })
  })

  it('changes nothing without devices, except that the rules express a wildcard as -1', () => {
    const bare = { ...linux, Resources: undefined }
    expect(withGuestDevices(bare, { updates: [], added: [] })).toBe(bare)
    const { Devices, Resources } = apply([])
    expect(Devices).toEqual(linux.Devices)
    expect(Resources?.Devices.map(({ Major, Minor }) => `${Major}:${Minor}`)).toEqual([
      '-1:-1',
      '8:-1',
      '8:16',
      '8:-1',
    ])
  })

  it('matches a device number of 0 exactly', () => {
    const { Resources } = apply([update('/dev/b', 0, { major: 259 })])
    const { devices } = JSON.parse(printJson(resourcesConfig(Resources ?? LinuxResources.create())))
    expect(devices.slice(1)).toEqual([
      // A rule of the host, in which 0 may stand for an absent number.
      { allow: true, type: 'b', major: 8, access: 'r' },
      { allow: true, type: 'b', major: 259, minor: 0, access: 'rw' },
      { allow: true, type: 'c', major: 8, access: 'm' },
      { allow: true, type: 'b', major: 259, minor: 0, access: 'rwm' },
    ])
  })

  it.each([
    [[update('/dev/zz', 1)], 'Missing devices in OCI spec: "/dev/zz"'],
    [[update('/dev/a', 1), update('/dev/a', 2)], 'Conflicting device updates for /dev/a'],
  ])('refuses %j', (updates, message) => {
    expect(() => apply(updates)).toThrow(message)
  })

  it('refuses the same host device at two paths', () => {
    const twice = { ...linux, Devices: [...linux.Devices, { ...linux.Devices[0], Path: '/dev/c' }] }
    const updates = [update('/dev/a', 1), update('/dev/c', 2)]
    expect(() => withGuestDevices(Linux.fromPartial(twice), { updates, added: [] })).toThrow(
      '/dev/c and /dev/a are the same device of the host: b 8:0',
    )
  })

  it('reads each of very many devices only a few times', () => {
    const count = 1000
    let looks = 0
    const Devices = Array.from({ length: count }, (_, index) => ({
      ...LinuxDevice.create(),
      get Path() {
        looks += 1
        return `/dev/${index}`
      },
      Minor: BigInt(index),
    }))
    const updates = Array.from({ length: count }, (_, index) => update(`/dev/${index}`, index))
    withGuestDevices({ ...linux, Devices }, { updates, added: [] })
    expect(looks).toBeLessThan(10 * count)
  })

  const apply = (updates: readonly DeviceUpdate[]) => withGuestDevices(linux, { updates, added: [] })
})
