import { describe, expect, it } from 'vitest'
import {
  ChangeStateRequest_Change as Change,
  EnsureInstanceRequest,
  type Instance,
} from '../../../../src/gen/microvm/instance/v1/instance.ts'
import type { HostMachines } from '../../../../src/host/instance/documents/host-machines.ts'
import type { Instances } from '../../../../src/host/instance/instances.ts'
import { DEFAULTS } from '../../../../src/host/machine/defaults.ts'
import { expand } from '../../../../src/host/machine/expand.ts'
import type { Backends } from '../../../../src/host/qemu/machine/as-spec.ts'
import { ADMIN } from '../../../support/wing/requests.ts'
import { SuspendedWing } from '../../../support/wing/suspended-wing.ts'
import { FakeWing } from '../../../support/wing/wing.ts'

/**
 * Resolves when a guest that stood still has a daemon whose threads are this process's, until its device has been asked to leave, and
 * the wing has dealt with it.
 */
async function goesDeaf({ holders }: FakeWing, instances: Instances): Promise<void> {
  let looks = 0
  const isDeaf = () => !holders.qemu.commands.includes('device_del')
  for (const holder of holders.running.values()) {
    const children = holder.children.bind(holder)
    holder.children = async () => {
      looks += 1
      const deaf = isDeaf() ? [{ name: 'vsock', pid: process.pid, exit: undefined }] : []
      return [...(await children()), ...deaf]
    }
  }
  const changeTo = (change: Change) => instances.changeState({ key: 'web', change, graceMs: 0 }, ADMIN)
  await changeTo(Change.PAUSE)
  await changeTo(Change.RUN)
  const before = looks
  await expect.poll(() => looks).toBeGreaterThan(before)
  // It comes after what is under way.
  await changeTo(Change.PAUSE)
}

describe('a deaf vsock daemon whose device QEMU does not let go', () => {
  it('leaves nothing unfinished', async () => {
    const wing = new SuspendedWing()
    const instances = await wing.daemon()
    await wing.make(instances)
    const { qemu } = wing.holders
    qemu.failures.set('device_del', "Bus 'pcie.0' does not support hotplugging")
    await goesDeaf(wing, instances)
    expect(qemu.commands).toContain('device_del')
    expect(await wing.unfinished()).toEqual([])
    expect([...qemu.devices]).toEqual(['name-vsock'])
  })
})

describe.each([
  ['pc', ', address: "00:10.0"'],
  ['q35', ''],
])('a deaf vsock daemon of a document on %s', (type, address) => {
  const document = `{kind: VM, spec: {features: {machine: {type: ${type}}, vsock: {cid: 42${address}}, storage: [{source: data}]}}}`

  async function running() {
    const wing = new FakeWing()
    wing.holders.prepare = ({ devices, failures }) => {
      devices.add('name-vsock0')
      failures.set('qom-get', 'no clock')
    }
    const instances = await wing.open(undefined, { machines: MACHINES })
    await instances.ensure(EnsureInstanceRequest.fromPartial({ properties: { key: 'web' }, document }), ADMIN)
    await instances.changeState({ key: 'web', change: Change.RUN, graceMs: 0 }, ADMIN)
    return { wing, instances, machines: async () => machinesOf(await instances.get('web', ADMIN)) }
  }

  it('is replaced, and its device comes back to its place', async () => {
    const { wing, instances, machines } = await running()
    const before = await machines()
    await goesDeaf(wing, instances)
    const { commands, devices } = wing.holders.qemu
    expect(commands.filter((name) => /^device_/.test(name))).toEqual(['device_del', 'device_add'])
    expect([...devices]).toEqual(['name-vsock0'])
    const after = await machines()
    for (const name of ['saved', 'desired', 'current'] as const) {
      const { plugged, ...device } = after[name].devices.vsock0
      expect(plugged).toBe(true)
      expect(device).toEqual(before[name].devices.vsock0)
      expect(after[name].backends['vsock0-backend']).toEqual(before[name].backends['vsock0-backend'])
    }
  })

  it('has its device at the next start when it could not come back', async () => {
    const { wing, instances, machines } = await running()
    const before = await machines()
    wing.holders.qemu.failures.set('device_add', 'no room')
    await goesDeaf(wing, instances)
    // Not while it is tried again.
    await expect.poll(async () => (await machines()).saved.devices.vsock0).toBeUndefined()
    await instances.changeState({ key: 'web', change: Change.KILL, graceMs: 0 }, ADMIN)
    expect((await machines()).saved.devices.vsock0).toMatchObject(before.saved.devices.vsock0)
    await instances.changeState({ key: 'web', change: Change.RUN, graceMs: 0 }, ADMIN)
    expect((await machines()).current.devices.vsock0).toMatchObject(before.saved.devices.vsock0)
  })
})

function machinesOf({ configurations }: Instance) {
  const { current = '', desired = '', saved = '' } = configurations ?? {}
  const read = (text: string) => (text === '' ? undefined : JSON.parse(text))
  return { current: read(current), desired: read(desired), saved: read(saved) }
}

const MACHINES: HostMachines = {
  defaults: DEFAULTS,
  expand: async (document, { isPrivileged }) => expand(document, { isPrivileged, isKept: true }),
  provide: async () => ({ backends: BACKENDS, passwords: {} }),
}

const BACKENDS: Backends = {
  'disk0-backend': { kind: 'file', path: '/disks/disk-64M', access: 'read-write' },
  'vsock0-backend': { kind: 'vsock-daemon' },
  'console0-backend': { kind: 'console' },
}
