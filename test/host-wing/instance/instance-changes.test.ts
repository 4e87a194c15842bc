import { describe, expect, it } from 'vitest'
import {
  Backend,
  ChangeStateRequest_Change as Change,
  Device,
  BackendStatus_Health as Health,
  DeviceStatus_Plug as Plug,
} from '../../../src/gen/microvm/instance/v1/instance.ts'
import type { Instances } from '../../../src/host/instance/instances.ts'
import { ADMIN, ensureRequest, file, specification } from '../../support/wing/requests.ts'
import { FakeWing } from '../../support/wing/wing.ts'

const DATA = Device.fromPartial({ backend: 'data-file', slot: 0, port: 'port', disk: { serial: 'data' } })

const plugData = (instances: Instances) =>
  instances.plug({ key: 'web', deviceKey: 'data', device: DATA, backend: file('/disks/data-8M') }, ADMIN)

const unplugData = (instances: Instances, graceMs = 0) =>
  instances.unplug({ key: 'web', deviceKey: 'data', graceMs }, ADMIN)

const replaceRoot = (instances: Instances, path: string) =>
  instances.replaceBackend({ key: 'web', backendKey: 'root-file', backend: file(path) }, ADMIN)

async function opened(
  wing = new FakeWing(),
): Promise<{ readonly wing: FakeWing; readonly instances: Instances }> {
  wing.holders.prepare = (qemu) => {
    qemu.nodes.set('name-root-file', { file: '/disks/root-16M', size: 2 ** 24, isRaw: true })
    qemu.nodes.set('name-root-file.a', { file: '/disks/root-16M', size: 2 ** 24, isRaw: false })
    qemu.devices.add('name-root')
  }
  const instances = await wing.open()
  await instances.ensure(ensureRequest('web'), ADMIN)
  return { wing, instances }
}

describe('plugging', () => {
  it('adds a device, answers the same again, and takes it out', async () => {
    const { wing, instances } = await opened()
    const plugged = await plugData(instances)
    expect(plugged.devices.data).toEqual({ plug: Plug.PRESENT })
    expect(plugged.backends['data-file']).toMatchObject({
      health: Health.READY,
      sizeBytes: BigInt(8 * 2 ** 20),
    })
    const commands = wing.holders.qemu.commands.length
    expect((await plugData(instances)).specification).toEqual(plugged.specification)
    expect(wing.holders.qemu.commands.slice(commands)).not.toContain('device_add')
    const unplugged = await unplugData(instances)
    expect(unplugged.specification).toEqual(specification())
    expect([...wing.holders.qemu.nodes.keys()]).toEqual(['name-root-file', 'name-root-file.a'])
    expect((await unplugData(instances)).specification).toEqual(specification())
  })

  it('ends the daemon that it has started when QEMU refuses the device', async () => {
    const { wing, instances } = await opened()
    const before = [wing.holders.processes, await wing.rows()]
    wing.holders.qemu.failures.set('device_add', 'PCI: no slot')
    const device = Device.fromPartial({ backend: 'folder', port: 'port', share: { tag: 'shared' } })
    const backend = Backend.fromPartial({ virtiofsd: { path: '/shared' } })
    const plugging = instances.plug({ key: 'web', deviceKey: 'share', device, backend }, ADMIN)
    await expect(plugging).rejects.toThrow('PCI: no slot')
    expect(wing.holders.qemu.commands).toContain('chardev-remove')
    expect([wing.holders.processes, await wing.rows()]).toEqual(before)
  })

  it('gives each instance a context id of its own with its first vsock', async () => {
    const { instances } = await opened()
    await instances.ensure(ensureRequest('other'), ADMIN)
    const plugVsock = (key: string, cid = 0) => {
      const device = Device.fromPartial({ backend: 'link', port: 'port', vsock: { cid } })
      const backend = Backend.fromPartial({ vsockDaemon: {} })
      return instances.plug({ key, deviceKey: 'vsock', device, backend }, ADMIN)
    }
    const [one, other] = await Promise.all([plugVsock('web'), plugVsock('other')])
    expect([one?.cid, other?.cid].sort()).toEqual([3, 4])
    await instances.ensure(ensureRequest('third'), ADMIN)
    await expect(plugVsock('third', 3)).rejects.toThrow('context id 3: another instance has it')
    expect((await plugVsock('third', 77)).cid).toBe(77)
  })

  it('takes back all that it has added to QEMU, also when QEMU keeps a part of it', async () => {
    const wing = new FakeWing()
    const instances = await wing.open()
    await instances.ensure(ensureRequest('web'), ADMIN)
    const { qemu } = wing.holders
    qemu.failures.set('device_add', 'PCI: no slot').set('blockdev-del', 'node is in use')
    await expect(plugData(instances)).rejects.toThrow('PCI: no slot')
    const count = (command: string) => qemu.commands.filter((each) => each === command).length
    expect([count('blockdev-add'), count('blockdev-del')]).toEqual([2, 2])
  })

  it('leaves nothing when QEMU refuses', async () => {
    const { wing, instances } = await opened()
    wing.holders.qemu.failures.set('device_add', 'PCI: no slot')
    await expect(plugData(instances)).rejects.toThrow('PCI: no slot')
    expect((await instances.get('web', ADMIN)).specification).toEqual(specification())
    expect([...wing.holders.qemu.nodes.keys()]).toEqual(['name-root-file', 'name-root-file.a'])
  })

  it('shows a device as leaving that the guest keeps, and follows when it goes', async () => {
    const { wing, instances } = await opened()
    await plugData(instances)
    wing.holders.qemu.isPolite = false
    const kept = await unplugData(instances, 20)
    expect(kept.devices.data).toMatchObject({ plug: Plug.LEAVING })
    wing.holders.qemu.letGo()
    await expect.poll(async () => (await instances.get('web', ADMIN)).devices).not.toHaveProperty('data')
  })

  it.each(['reset', 'stop'] as const)('forgets a leaving device at a %s', async (by) => {
    const { wing, instances } = await opened()
    await plugData(instances)
    wing.holders.qemu.isPolite = false
    await unplugData(instances, 20)
    const change = by === 'reset' ? Change.RESET : Change.STOP
    const changed = await instances.changeState({ key: 'web', change, graceMs: 1 }, ADMIN)
    expect(changed.specification).toEqual(specification())
  })

  it.each([
    ['a scratch disk', DATA, Backend.fromPartial({ file: { path: '/x', access: 3 } }), 'UNIMPLEMENTED'],
    ['a disk on the first bus of q35', { ...DATA, slot: 9, port: '' }, file('/x'), 'FAILED_PRECONDITION'],
    [
      'a backend of another kind',
      DATA,
      Backend.fromPartial({ tap: { interfaceName: 'tap0' } }),
      'INVALID_ARGUMENT',
    ],
  ])('refuses %s', async (_, device, backend, code) => {
    const { instances } = await opened()
    const plugging = instances.plug({ key: 'web', deviceKey: 'data', device, backend }, ADMIN)
    await expect(plugging).rejects.toMatchObject({ code })
  })
})

describe('replacing a backend', () => {
  it('gives the format node another file, there and back', async () => {
    const { wing, instances } = await opened()
    for (const [path, name] of [
      ['/disks/other-16M', 'name-root-file.b'],
      ['/disks/third-16M', 'name-root-file.a'],
    ] as const) {
      const replaced = await replaceRoot(instances, path)
      expect(replaced.specification?.backends['root-file']).toEqual(file(path))
      expect([...wing.holders.qemu.nodes].map(([node, { file: below }]) => [node, below])).toEqual([
        ['name-root-file', path],
        [name, path],
      ])
    }
    expect(wing.holders.qemu.commands).not.toContain('block_resize')
  })

  it('enlarges the disk with a larger file, and refuses a smaller one', async () => {
    const { wing, instances } = await opened()
    await replaceRoot(instances, '/disks/large-32M')
    expect(wing.holders.qemu.commands).toContain('block_resize')
    await expect(replaceRoot(instances, '/disks/small-8M')).rejects.toThrow('want at least 33554432')
    const { specification: present, backends } = await instances.get('web', ADMIN)
    expect(present?.backends['root-file']).toEqual(file('/disks/large-32M'))
    expect(backends['root-file']?.sizeBytes).toBe(BigInt(32 * 2 ** 20))
    expect(wing.holders.qemu.nodes.size).toBe(2)
  })

  it('keeps the old file when QEMU refuses', async () => {
    const { wing, instances } = await opened()
    wing.holders.qemu.failures.set('blockdev-reopen', 'locked')
    await expect(replaceRoot(instances, '/disks/other-16M')).rejects.toThrow('locked')
    expect((await instances.get('web', ADMIN)).specification).toEqual(specification())
    expect([...wing.holders.qemu.nodes.keys()]).toEqual(['name-root-file', 'name-root-file.a'])
  })

  it('only changes the record of a stopped instance', async () => {
    const { instances } = await opened()
    await instances.changeState({ key: 'web', change: Change.KILL, graceMs: 0 }, ADMIN)
    const replaced = await replaceRoot(instances, '/disks/other-16M')
    expect(replaced.specification?.backends['root-file']).toEqual(file('/disks/other-16M'))
  })
})
