import { describe, expect, it } from 'vitest'
import { DeviceStatus_Plug as Plug } from '../../../src/gen/microvm/instance/v1/instance.ts'
import type { Instances } from '../../../src/host/instance/instances.ts'
import type { Registry } from '../../../src/host/instance/registry/registry.ts'
import { LIFE, type LifePlan } from '../../support/wing/lives/life.ts'
import { ADMIN, ensureRequest, file, specification } from '../../support/wing/requests.ts'
import { FakeWing } from '../../support/wing/wing.ts'

const PLAN: LifePlan = { request: ensureRequest('web'), other: '/disks/other-16M', data: '/disks/data-8M' }
const ROOT_NODES = ['name-root-file', 'name-root-file.a']

/** Whether the daemon dies once its step is written down, or once it is done and before that is written. */
type Moment = 'before QEMU is asked' | 'after QEMU has answered'

/** An instance whose daemon has died in the call, and that was taken in again. */
async function died(
  name: string,
  moment: Moment,
  meanwhile: (wing: FakeWing) => void = () => {},
): Promise<{ wing: FakeWing; instances: Instances }> {
  const wing = new FakeWing()
  wing.holders.prepare = (qemu) => {
    for (const [index, node] of ROOT_NODES.entries())
      qemu.nodes.set(node, { file: '/disks/root-16M', size: 2 ** 24, isRaw: index === 0 })
    qemu.devices.add('name-root')
  }
  const death = Promise.withResolvers<void>()
  const never = () => new Promise<void>(() => death.resolve())
  const isStep = (key: string) => key.startsWith(`web/${name === 'allocatePort' ? 'stream' : name}/`)
  const registry: Registry = {
    load: (table) => wing.registry.load(table),
    close: () => wing.registry.close(),
    commit: async (changes) => {
      const step = changes.find(({ table, key }) => table === 'steps' && isStep(key))
      if (step?.payload === undefined && step !== undefined) return await never()
      await wing.registry.commit(changes)
      if (step !== undefined && moment === 'before QEMU is asked') await never()
    },
  }
  const before = await wing.open(registry)
  await LIFE.ensure?.(before, PLAN)
  void LIFE[name]?.(before, PLAN)
  await death.promise
  meanwhile(wing)
  return { wing, instances: await wing.open() }
}

const unfinished = async (wing: FakeWing) =>
  (await wing.rows()).filter((key) => /\/(plug|replace)\//.test(key))

describe('what a daemon has begun when it dies', () => {
  it('is no plugged device when QEMU has none', async () => {
    const { wing, instances } = await died('plug', 'before QEMU is asked')
    expect((await instances.get('web', ADMIN)).specification).toEqual(specification())
    expect(await unfinished(wing)).toEqual([])
  })

  it('is no plugged device when the machine has ended meanwhile', async () => {
    const end = (wing: FakeWing) => [...wing.holders.running.values()][0]?.die()
    const { wing, instances } = await died('plug', 'after QEMU has answered', end)
    expect((await instances.get('web', ADMIN)).specification).toEqual(specification())
    expect(await unfinished(wing)).toEqual([])
  })

  it('is a plugged device when QEMU has it', async () => {
    const { wing, instances } = await died('plug', 'after QEMU has answered')
    expect((await instances.get('web', ADMIN)).devices.data).toEqual({ plug: Plug.PRESENT })
    expect(await unfinished(wing)).toEqual([])
  })

  it.each([
    ['the old file when QEMU has that', 'before QEMU is asked', '/disks/root-16M', ROOT_NODES],
    [
      'the new file when QEMU has that',
      'after QEMU has answered',
      PLAN.other,
      ['name-root-file', 'name-root-file.b'],
    ],
  ] as const)('is %s', async (_, moment, path, nodes) => {
    const { wing, instances } = await died('replace', moment)
    expect((await instances.get('web', ADMIN)).specification?.backends['root-file']).toEqual(file(path))
    expect([...wing.holders.qemu.nodes.keys()]).toEqual(nodes)
    expect(await unfinished(wing)).toEqual([])
  })

  it('is a stream on whose port the holder listens', async () => {
    const { instances } = await died('allocatePort', 'before QEMU is asked')
    expect(await instances.streams('web', ADMIN)).toMatchObject([{ port: 65_536, closed: false }])
  })
})
