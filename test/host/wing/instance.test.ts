import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, describe, expect, it } from 'vitest'
import { ChangeStateRequest_Change as Change, State } from '../../../src/gen/microvm/instance/v1/instance.ts'
import type { Instances } from '../../../src/host/instance/instances.ts'
import { memoryRegistry } from '../../../src/host/instance/registry/memory-registry.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import { lifePlan, openReal } from '../../support/wing/real-wing.ts'
import { ADMIN } from '../../support/wing/requests.ts'

const opened: Instances[] = []

afterEach(async () => {
  for (const instances of opened.splice(0)) {
    for (const { properties } of instances.list(ADMIN)) await instances.remove(properties?.key ?? '', ADMIN)
    await instances.close()
  }
})

async function open(does: Parameters<typeof lifePlan>[1] = 'idle') {
  const folder = temporaryFolder()
  const instances = await openReal(folder, memoryRegistry())
  opened.push(instances)
  return { folder, instances, plan: lifePlan(join(folder, 'disks'), does) }
}

const change = (instances: Instances, to: Change) =>
  instances.changeState({ key: 'web', change: to, graceMs: 100 }, ADMIN)

describe('an instance with a real QEMU', () => {
  it('lives: paused, running, paused, reset, stopped, running, removed', async () => {
    const { instances, plan, folder } = await open()
    const made = await instances.ensure(plan.request, ADMIN)
    expect(made).toMatchObject({
      state: State.PAUSED,
      backends: { 'root-file': { locks: ['write'], sizeBytes: 16n * 2n ** 20n } },
    })
    expect(made.qemuPid).toBeGreaterThan(0)
    expect((await change(instances, Change.RUN)).state).toBe(State.RUNNING)
    expect((await change(instances, Change.PAUSE)).state).toBe(State.PAUSED)
    expect((await change(instances, Change.RESET)).bootId).not.toBe(made.bootId)
    expect((await change(instances, Change.STOP)).state).toBe(State.STOPPED)
    const [name = ''] = readdirSync(join(folder, 'instances'))
    expect(readdirSync(join(folder, 'instances', name)).sort()).toEqual([
      'console.ring',
      'exits',
      'qemu.log',
      'specification.binpb',
    ])
    expect((await change(instances, Change.RUN)).state).toBe(State.RUNNING)
    await instances.remove('web', ADMIN)
    expect(readdirSync(join(folder, 'instances'))).toEqual([])
  })
})
