import { describe, expect, it } from 'vitest'
import { ChangeStateRequest_Change as Change } from '../../../../src/gen/microvm/instance/v1/instance.ts'
import type { Instances } from '../../../../src/host/instance/instances.ts'
import { ADMIN } from '../../../support/wing/requests.ts'
import { SuspendedWing } from '../../../support/wing/suspended-wing.ts'

/** Pauses the guest and lets it go on, with a daemon whose threads are this process's. */
async function goesDeaf({ holders }: SuspendedWing, instances: Instances): Promise<void> {
  for (const holder of holders.running.values())
    holder.children = async () => [{ name: 'vsock', pid: process.pid, exit: undefined }]
  for (const change of [Change.PAUSE, Change.RUN])
    await instances.changeState({ key: 'web', change, graceMs: 0 }, ADMIN)
}

describe('a deaf vsock daemon whose device QEMU does not let go', () => {
  it('leaves nothing unfinished', async () => {
    const wing = new SuspendedWing()
    const instances = await wing.daemon()
    await wing.make(instances)
    const { qemu } = wing.holders
    qemu.failures.set('device_del', "Bus 'pcie.0' does not support hotplugging")
    await goesDeaf(wing, instances)
    await expect.poll(() => qemu.commands).toContain('device_del')
    // It comes after the healing.
    await instances.changeState({ key: 'web', change: Change.PAUSE, graceMs: 0 }, ADMIN)
    expect(await wing.unfinished()).toEqual([])
    expect([...qemu.devices]).toEqual(['name-vsock'])
  })
})
