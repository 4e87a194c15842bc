import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import {
  Backend,
  ChangeStateRequest_Change as Change,
  type DeepPartial,
  BackendStatus_Health as Health,
  type Specification,
  State,
} from '../../../src/gen/microvm/instance/v1/instance.ts'
import { InstanceRecord } from '../../../src/gen/microvm/instance/v1/records.ts'
import type { Instances } from '../../../src/host/instance/instances.ts'
import type { Moves } from '../../../src/host/instance/moves.ts'
import { stepRow } from '../../../src/host/instance/record/instance-record.ts'
import { memoryRegistry } from '../../../src/host/instance/registry/memory-registry.ts'
import { ADMIN, ensureRequest, specification } from '../../support/wing/requests.ts'
import { FakeWing } from '../../support/wing/wing.ts'

const change = (instances: Instances, to: Change) =>
  instances.changeState({ key: 'web', change: to, graceMs: 0 }, ADMIN)

/** An instance that runs, whose daemon has let go of it. */
async function left(wing: FakeWing, parts: DeepPartial<Specification> = {}): Promise<void> {
  const instances = await wing.open()
  await instances.ensure(ensureRequest('web', { specification: parts }), ADMIN)
  await change(instances, Change.RUN)
  await instances.allocatePort({ key: 'web', container: 'c', exec: 'e', stream: 'stderr' }, ADMIN)
  await instances.close()
}

const MAC = '52:54:00:00:00:09'

function withTap(): DeepPartial<Specification> {
  const { devices, backends } = specification()
  return {
    devices: { ...devices, card: { backend: 'net', slot: 7, nic: { mac: MAC } } },
    backends: { ...backends, net: Backend.fromPartial({ tap: { interfaceName: 'tap0' } }) },
  }
}

describe('taking instances in again', () => {
  it('finds a machine as it was left, with its streams, and follows it', async () => {
    const wing = new FakeWing()
    await left(wing)
    const instances = await wing.open()
    expect((await instances.get('web', ADMIN)).state).toBe(State.RUNNING)
    expect(await instances.streams('web', ADMIN)).toMatchObject([
      { port: 65_536, stream: 'stderr', closed: false },
    ])
    const next = await instances.allocatePort(
      { key: 'web', container: 'd', exec: '', stream: 'stdin' },
      ADMIN,
    )
    expect(next.port).toBe(65_537)
    expect(instances.metrics()).toContain('changes_total{kind="adopted"} 1\n')
    wing.holders.qemu.emit('GUEST_PANICKED')
    await expect.poll(async () => (await instances.get('web', ADMIN)).state).toBe(State.STOPPED)
    expect((await instances.get('web', ADMIN)).reason).toBe('the guest panicked')
    expect(await wing.rows()).toHaveLength(2)
  })

  it('connects a tap as a start does', async () => {
    const wing = new FakeWing()
    await left(wing, withTap())
    const before = new Map(wing.macs)
    wing.macs.clear()
    await wing.open()
    expect(wing.macs).toEqual(before)
    expect(before).toEqual(new Map([['tap0', MAC]]))
  })

  it('keeps a machine whose tap cannot be connected, or whose ports cannot be listened on', async () => {
    const wing = new FakeWing()
    await left(wing, withTap())
    wing.linkFailure = new Error('no such bridge')
    wing.holders.unheard = 65_536
    await [...wing.holders.running.values()][0]?.closeRing(65_536)
    const instances = await wing.open()
    expect((await instances.get('web', ADMIN)).state).toBe(State.RUNNING)
  })

  it('corrects the record by what QEMU says', async () => {
    const wing = new FakeWing()
    await left(wing)
    wing.holders.qemu.isRunning = false
    const instances = await wing.open()
    expect((await instances.get('web', ADMIN)).state).toBe(State.PAUSED)
  })

  it.each([
    [
      'the holder has died',
      (wing: FakeWing) => [...wing.holders.running.values()][0]?.die(),
      'the holder died while no daemon ran',
    ],
    ['QEMU has ended', (wing: FakeWing) => wing.holders.qemu.end(), 'QEMU exited with status 0'],
  ])('stops an instance when %s', async (_, end, reason) => {
    const wing = new FakeWing()
    await left(wing)
    end(wing)
    const instances = await wing.open()
    const { state, reason: found } = await instances.get('web', ADMIN)
    expect([state, found, wing.holders.processes]).toEqual([State.STOPPED, reason, []])
    expect(await instances.streams('web', ADMIN)).toEqual([])
    expect((await change(instances, Change.RUN)).state).toBe(State.RUNNING)
  })

  it('serves the others while one QEMU does not answer', async () => {
    const wing = new FakeWing({ adoptionMs: 1, greetingMs: 500, exitMs: 50 })
    await left(wing)
    wing.holders.qemu.ignored.add('greeting')
    const instances = await wing.open()
    expect((await instances.ensure(ensureRequest('other'), ADMIN)).state).toBe(State.PAUSED)
    expect(instances.list(ADMIN).map(({ state }) => state)).toEqual([State.PAUSED, State.RUNNING])
    expect(await instances.get('web', ADMIN)).toMatchObject({ state: State.STOPPED })
  })

  it('takes the others in while controllers do not say whether a machine has come', async () => {
    const wing = new FakeWing({ adopted: 1 })
    await left(wing)
    const before = await wing.open()
    await before.ensure(ensureRequest('other'), ADMIN)
    await before.close()
    const step = { instance: 'web', step: 'incoming', words: ['', 'a', 'own'] }
    await wing.registry.commit([stepRow(step)])
    const said = Promise.withResolvers<boolean>()
    const settle = ({ key }: { key: string }) => (key === 'web' ? said.promise : Promise.resolve(false))
    const instances = await wing.open(wing.registry, { moves: { settle } as Partial<Moves> as Moves })
    expect((await instances.get('other', ADMIN)).state).toBe(State.PAUSED)
    said.resolve(false)
    expect((await instances.get('web', ADMIN)).state).toBe(State.RUNNING)
  })

  it('stops an instance whose QEMU does not answer', async () => {
    const wing = new FakeWing({ greetingMs: 300, exitMs: 50 })
    await left(wing)
    wing.holders.qemu.ignored.add('greeting')
    const instances = await wing.open()
    expect(await instances.get('web', ADMIN)).toMatchObject({ state: State.STOPPED })
    expect(wing.holders.processes).toEqual([])
  })

  it('writes the steps down where the registry was made anew', async () => {
    const wing = new FakeWing()
    await left(wing)
    const steps = await wing.registry.load('steps')
    await wing.registry.commit([...steps.keys()].map((key) => ({ table: 'steps', key, payload: undefined })))
    const instances = await wing.open()
    expect((await instances.get('web', ADMIN)).state).toBe(State.RUNNING)
    await change(instances, Change.KILL)
    expect(wing.holders.processes).toEqual([])
  })
})

describe('the status of a backend', () => {
  it('is dead once its daemon has ended, and unused without a machine', async () => {
    const wing = new FakeWing()
    const instances = await wing.open()
    const { devices, backends } = specification()
    const shares = {
      devices: { ...devices, share: { backend: 'folder', slot: 5, port: '', share: { tag: 'shared' } } },
      backends: { ...backends, folder: Backend.fromPartial({ virtiofsd: { path: '/srv' } }) },
    }
    await instances.ensure(ensureRequest('web', { specification: shares }), ADMIN)
    const health = async () => (await instances.get('web', ADMIN)).backends.folder?.health
    expect(await health()).toBe(Health.READY)
    await [...wing.holders.running.values()][0]?.kill('virtiofsd-folder')
    expect(await health()).toBe(Health.DEAD)
    await change(instances, Change.KILL)
    expect(await health()).toBe(Health.UNUSED)
  })
})

describe('a registry that is made anew', () => {
  it.each([
    ['runs', Change.RUN, State.RUNNING],
    ['has stopped', Change.STOP, State.STOPPED],
  ])('has an instance that %s as it is', async (_, to, state) => {
    const wing = new FakeWing()
    const before = await wing.open()
    await before.ensure(ensureRequest('web'), ADMIN)
    await change(before, Change.RUN)
    await change(before, to)
    await before.close()
    const [name = ''] = readdirSync(join(wing.folder, 'instances'))
    const payload = readFileSync(join(wing.folder, 'instances', name, 'specification.binpb'))
    const registry = memoryRegistry()
    await registry.commit([{ table: 'instances', key: 'web', payload }])
    const instances = await wing.open(registry)
    expect((await instances.get('web', ADMIN)).state).toBe(state)
    await instances.remove('web', ADMIN)
    expect([wing.holders.processes, readdirSync(join(wing.folder, 'instances'))]).toEqual([[], []])
  })

  it.each([
    ['that may have gone to another host', { instanceId: 'i' }],
    ['that was on its way here', { target: { source: 'a' } }],
  ])('lets no machine run %s', async (_, known) => {
    const wing = new FakeWing()
    await left(wing)
    wing.holders.qemu.isRunning = false
    wing.holders.qemu.isSaved = true
    const [name = ''] = readdirSync(join(wing.folder, 'instances'))
    const payload = readFileSync(join(wing.folder, 'instances', name, 'specification.binpb'))
    const record = InstanceRecord.fromPartial({ ...InstanceRecord.decode(payload), ...known })
    const registry = memoryRegistry()
    const row = { table: 'instances', key: 'web', payload: InstanceRecord.encode(record).finish() } as const
    await registry.commit([row])
    const instances = await wing.open(registry)
    await expect(change(instances, Change.RUN)).rejects.toThrow('another host may run its machine')
    expect([wing.holders.qemu.isRunning, wing.holders.processes.length]).toEqual([false, 2])
    await instances.remove('web', ADMIN)
  })
})
