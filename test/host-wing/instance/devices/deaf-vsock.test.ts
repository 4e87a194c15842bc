import { describe, expect, it } from 'vitest'
import {
  ChangeStateRequest_Change as Change,
  EnsureInstanceRequest,
} from '../../../../src/gen/microvm/instance/v1/instance.ts'
import type { HostMachines } from '../../../../src/host/instance/documents/host-machines.ts'
import type { Instances } from '../../../../src/host/instance/instances.ts'
import { DEFAULTS } from '../../../../src/host/machine/defaults.ts'
import { expand } from '../../../../src/host/machine/expand.ts'
import type { Backends } from '../../../../src/host/qemu/machine/as-spec.ts'
import { ADMIN } from '../../../support/wing/requests.ts'
import { SuspendedWing } from '../../../support/wing/suspended-wing.ts'
import { FakeWing } from '../../../support/wing/wing.ts'

/** Resolves when a guest that stood still has a daemon whose threads are this process's, and the wing has dealt with it. */
async function goesDeaf({ holders }: FakeWing, instances: Instances): Promise<void> {
  let looks = 0
  for (const holder of holders.running.values())
    holder.children = async () => {
      looks += 1
      return [{ name: 'vsock', pid: process.pid, exit: undefined }]
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

describe('a deaf vsock daemon of a document', () => {
  it('keeps its device, which could not come back', async () => {
    const wing = new FakeWing()
    wing.holders.prepare = ({ devices, failures }) => {
      devices.add('name-vsock0')
      failures.set('qom-get', 'no clock')
    }
    const instances = await wing.open(undefined, { machines: MACHINES })
    const document =
      '{kind: VM, spec: {features: {machine: {type: pc}, vsock: true, storage: [{source: data}]}}}'
    await instances.ensure(EnsureInstanceRequest.fromPartial({ properties: { key: 'web' }, document }), ADMIN)
    await instances.changeState({ key: 'web', change: Change.RUN, graceMs: 0 }, ADMIN)
    await goesDeaf(wing, instances)
    expect([...wing.holders.qemu.devices]).toEqual(['name-vsock0'])
  })
})

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
