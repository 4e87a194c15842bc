import { existsSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { silentLogger } from '../../../../src/base/log.ts'
import { Vm } from '../../../../src/gen/microvm/controller/v1/controller.ts'
import { InstanceRecord, type StepRecord } from '../../../../src/gen/microvm/instance/v1/records.ts'
import { movedAway } from '../../../../src/host/instance/moving/moved-away.ts'
import { HANDED } from '../../../../src/host/instance/moving/undecided.ts'
import { memoryRegistry } from '../../../../src/host/instance/registry/memory-registry.ts'
import { MOVE_SETTINGS } from '../../../../src/host/migration/move/move-host.ts'
import { settleMove } from '../../../../src/host/migration/move/source.ts'
import { temporaryFolder } from '../../../support/temporary-folder.ts'
import { StandInController } from '../../../support/wing/moves/stand-in-controller.ts'

type Settled = Parameters<typeof settleMove>

it.each([
  ['of this version', ['b', 'b:7443'], 'host b at b:7443'],
  ['of an older daemon, which told no host,', [], 'another host'],
])('a move %s is ended with its disks', async (_, target, place) => {
  const folder = temporaryFolder()
  const disks = ['one.raw', 'two.raw', 'three.raw'].map((name) => join(folder, name))
  for (const disk of disks) writeFileSync(disk, '')
  const words = [...Array<string>(6).fill(''), HANDED, '', ...target, ...disks]
  const steps: StepRecord[] = [{ instance: 'web', step: 'move', words }]
  const registry = memoryRegistry()
  const record = InstanceRecord.fromPartial({ properties: { key: 'web' }, runId: 1n, instanceId: 'one' })
  const recorded = {
    ...{ record, steps, load: registry.load },
    commit: async ({ add = [], rows = [] }: Parameters<Settled[0]['recorded']['commit']>[0]) => {
      for (const step of add) steps.splice(0, 1, step)
      await registry.commit(rows)
    },
  }
  const controller = new StandInController()
  const authoritative = { namespace: 'default', vmName: 'web', podName: 'b/1', runId: 1n }
  controller.vms.set('default/web', Vm.fromPartial({ authoritative }))
  const instance = {
    ...{ key: 'web', record, recorded, context: { log: silentLogger() }, streams: new Map() },
    ...{ ending: new AbortController().signal, beginBoot: () => {}, finishRemoval: async () => {} },
  }
  const host = {
    ...{ id: 'a', controller, settings: MOVE_SETTINGS, closing: instance.ending },
    nextRunId: async () => 2n,
  }
  const [step] = steps
  await settleMove(...([instance, step, host] as unknown as Settled))
  expect(disks.filter((disk) => existsSync(disk))).toEqual([])
  expect((await movedAway(registry, 'web', { tenant: undefined }))?.message).toBe(
    `instance web: not found: its machine runs on ${place}`,
  )
})
