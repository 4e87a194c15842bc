import { createHash } from 'node:crypto'
import { existsSync, readdirSync, readFileSync, truncateSync, utimesSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { afterEach, describe, expect, it } from 'vitest'
import { AgentError } from '../../../../src/base/errors.ts'
import {
  ChangeStateRequest_Change as Change,
  CloneInstanceRequest,
  type DeepPartial,
  type Instance,
  PlugRequest,
  SavedInit,
  State,
  SuspendInstanceRequest,
} from '../../../../src/gen/microvm/instance/v1/instance.ts'
import { StepRecord } from '../../../../src/gen/microvm/instance/v1/records.ts'
import { readRing } from '../../../../src/host/instance/holder/holder-files.ts'
import { findHolder } from '../../../../src/host/instance/holder/start-holder.ts'
import { stepKey, stepRow } from '../../../../src/host/instance/record/instance-record.ts'
import { memoryRegistry } from '../../../../src/host/instance/registry/memory-registry.ts'
import { openClone } from '../../../../src/host/migration/clone.ts'
import { readManifest } from '../../../../src/host/migration/manifest.ts'
import { factsOf } from '../../../../src/host/migration/memory-file.ts'
import { temporaryFolder } from '../../../support/temporary-folder.ts'
import { CountingMachines } from '../../../support/wing/counting-machine.ts'
import { leftovers } from '../../../support/wing/leftovers.ts'
import { DOCUMENT_LIFE } from '../../../support/wing/lives/document-life.ts'
import { documentLifePlan, openReal } from '../../../support/wing/real-wing.ts'
import { ADMIN } from '../../../support/wing/requests.ts'

let registry = memoryRegistry()
const newHost = () => {
  registry = memoryRegistry()
  return new CountingMachines(undefined, undefined, registry)
}
let host = newHost()
const noCheck = async () => {}

async function clone(
  request: DeepPartial<CloneInstanceRequest> = {},
  { saved = 'one' } = {},
): Promise<readonly Instance[]> {
  const whole = CloneInstanceRequest.fromPartial({
    ...{ saved, count: 1, name: 'c', withoutAgent: true },
    ...request,
  })
  return await (await host.open()).clone(whole, ADMIN, noCheck)
}

const keysOf = (instances: readonly Instance[]) => instances.map(({ properties }) => properties?.key)
const keeperOf = (id: string) => findHolder(join(host.folder, 'keepers', id))

/** What clones have left, which keepers are not. */
const ofClones = () => leftovers(host.folder).filter((each) => !each.includes('/keepers/'))

async function endKeeper(id: string): Promise<void> {
  const keeper = await keeperOf(id)
  if (keeper?.pid === undefined) throw new Error('no keeper')
  process.kill(keeper.pid, 'SIGKILL')
  await keeper.ended
}

/** Resolves once the clone has gone on from what the machine had told until it was saved. */
async function goesOn(key: string, from: bigint): Promise<void> {
  await host.counted(key, 100)
  expect((await host.told(key)).end).toBeGreaterThan(from)
}

afterEach(async () => {
  host.atStep = async () => {}
  await host.end()
  const instances = await host.open()
  for (const { name } of await instances.listSaved(ADMIN)) await instances.deleteSaved(name, ADMIN)
  await host.leave()
  expect(leftovers(host.folder)).toEqual([])
  const keepers = join(host.folder, 'keepers')
  expect(existsSync(keepers) ? readdirSync(keepers) : []).toEqual([])
  host = newHost()
})

describe('clones of a machine that was saved', () => {
  it('go on each for itself, from the memory of one keeper, which they do not change', async () => {
    await host.make()
    const { folder, id } = await host.suspend()
    const { end } = await readRing(folder, 0)
    const memory = await factsOf(join(folder, 'memory'))
    const clones = await clone({ count: 3 })
    expect(keysOf(clones)).toEqual(['c-1', 'c-2', 'c-3'])
    for (const { properties, state } of clones) {
      expect(state).toBe(State.RUNNING)
      await goesOn(properties?.key ?? '', end)
    }
    expect(new Set(clones.map(({ bootId }) => bootId)).size).toBe(3)
    expect(new Set(clones.map(({ uid }) => uid)).size).toBe(3)
    expect(await factsOf(join(folder, 'memory'))).toEqual(memory)
    // The next daemon finds the clones and the keeper; one that has died is made anew.
    await host.leave()
    const keeper = await keeperOf(id)
    keeper?.disconnect()
    expect(keysOf(await clone({ count: 4 }))).toEqual(['c-1', 'c-2', 'c-3', 'c-4'])
    expect((await keeperOf(id))?.pid).toBe(keeper?.pid)
    await endKeeper(id)
    await clone({ name: 'later' })
    await goesOn('c-4', end)
    await goesOn('later', end)
    expect(readFileSync(`/proc/${host.pidsOf('qemu', 'later')[0]}/cmdline`, 'utf8')).toContain('share=off')
    // The last one takes the keeper with it.
    const instances = await host.open()
    for (const key of ['c-1', 'c-2', 'c-3', 'c-4']) await instances.remove(key, ADMIN)
    expect(await keeperOf(id)).toBeDefined()
    await instances.remove('later', ADMIN)
    await expect.poll(() => keeperOf(id)).toBeUndefined()
  })

  it('write to disks of their own, and have addresses and interfaces of their own', async () => {
    const disk = join(host.disks, 'root')
    const nic = { mac: '52:54:00:00:00:08' }
    const tap = { interfaceName: `cl${process.pid}` }
    await host.make('web', {
      devices: { lan: { backend: 'lan-tap', slot: 8, nic } },
      backends: { 'lan-tap': { tap } },
    })
    const { folder } = await host.suspend()
    const before = createHash('sha256').update(readFileSync(disk)).digest('hex')
    const clones = await clone({ count: 2 })
    const specifications = clones.map(({ specification }) => specification)
    for (const [field, all] of [
      ['mac', specifications.map((each) => each?.devices.lan?.nic?.mac)],
      ['tap', specifications.map((each) => each?.backends['lan-tap']?.tap?.interfaceName)],
    ] as const)
      expect(new Set([...all, nic.mac, tap.interfaceName, undefined]).size, field).toBe(5)
    const instances = await host.open()
    for (const key of ['c-1', 'c-2']) {
      const { layers } = await instances.snapshots(key, ADMIN)
      expect(layers).toMatchObject([{ base: disk, active: true }])
      await expect(instances.removeSnapshot({ key, name: '', all: true }, ADMIN)).rejects.toMatchObject({
        code: 'FAILED_PRECONDITION',
      })
    }
    expect(createHash('sha256').update(readFileSync(disk)).digest('hex')).toBe(before)
    // The machine itself would write to the file that is below the clones' layers.
    await expect(host.resume()).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
      message: expect.stringMatching(/snapshots of instance c-[12] are on it/),
    })
    // A clone that boots anew has its own disk, and memory that daemons can map.
    await instances.changeState({ key: 'c-1', change: Change.KILL, graceMs: 0 }, ADMIN)
    await host.again('c-1')
    expect(readFileSync(`/proc/${host.pidsOf('qemu', 'c-1')[0]}/cmdline`, 'utf8')).toContain('share=on')
    expect((await factsOf(join(folder, 'memory'))).sizeBytes).toBeGreaterThan(0)
  })

  it('can be saved and cloned again, over and over', async () => {
    await host.make()
    await host.suspend()
    for (const [saved, name, next] of [
      ['one', 'a', 'two'],
      ['two', 'b', 'three'],
      ['three', 'c', ''],
    ] as const) {
      await clone({ name }, { saved })
      const { end } = await host.told(name)
      await goesOn(name, end)
      if (next !== '') await host.suspend({ key: name, name: next })
    }
    const instances = await host.open()
    expect((await instances.snapshots('c', ADMIN)).layers.length).toBe(3)
    // One that was saved and goes on has its disk's own file with others still.
    await host.suspend({ key: 'c', name: 'four' })
    await host.resume({ name: 'four' }, 'd')
    await host.counted('d', 10)
    await expect(instances.removeSnapshot({ key: 'd', name: '', all: true }, ADMIN)).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
    })
  })

  it('are told from the machine that one of them became, by whoever asks for it again', async () => {
    await host.make()
    await host.suspend()
    await clone()
    await host.suspend({ key: 'c', name: 'two' })
    const { bootId } = await host.resume({ name: 'two' }, 'c')
    expect(await host.resume({ name: 'two' }, 'c')).toMatchObject({ bootId })
    await expect(clone({}, { saved: 'two' })).rejects.toMatchObject({
      message: expect.stringMatching(/^clone c: .*two: was resumed already, as instance c: /),
    })
  })

  it.each([
    ['a clone, which may be the same as others', false],
    ['and not the machine that a clone became', true],
  ])('are removed when a later daemon cannot repair %s', async (_, isResumed) => {
    await host.make()
    await host.suspend()
    await clone()
    if (isResumed) {
      await host.suspend({ key: 'c', name: 'two' })
      await host.resume({ name: 'two' }, 'c')
    }
    await host.leave()
    // An earlier daemon has died in the repair. There is no agent that could be told.
    const step = StepRecord.create({ instance: 'c', step: 'repair', words: ['', ''] })
    await registry.commit([stepRow(step)])
    await host.open()
    const hasRepair = async () => (await registry.load('steps')).has(stepKey(step))
    const late = AbortSignal.timeout(60_000)
    while (await hasRepair()) await delay(10, undefined, { signal: late })
    // It is removed in a change, after which this one has its turn.
    const paused = await host.change(Change.PAUSE, 'c').then(
      ({ state }) => state,
      ({ code }) => code,
    )
    expect(paused).toBe(isResumed ? State.PAUSED : 'NOT_FOUND')
  })

  it('are refused of a guest that had no agent, unless they are asked for so', async () => {
    await host.make()
    const { folder } = await host.suspend()
    await expect(clone({ withoutAgent: false })).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
      message: `clone c: ${folder}: was saved without its agent, so clones would share random numbers, the host's name and hardware addresses, want without_agent; no clone was made`,
    })
    expect(ofClones()).toEqual([])
  })

  it('of a document have a UUID of their own', async () => {
    const folder = temporaryFolder()
    const plan = documentLifePlan(join(folder, 'images'))
    const instances = await openReal(folder, memoryRegistry(), { catalogue: plan.catalogue })
    await DOCUMENT_LIFE.ensure?.(instances, plan)
    await instances.changeState({ key: 'web', change: Change.RUN, graceMs: 0 }, ADMIN)
    const { configurations } = await instances.get('web', ADMIN)
    const suspend = { key: 'web', name: 'one', withoutAgent: true }
    await instances.suspend(SuspendInstanceRequest.fromPartial(suspend), ADMIN)
    const request = CloneInstanceRequest.fromPartial({
      saved: 'one',
      count: 2,
      name: 'c',
      withoutAgent: true,
    })
    const clones = await instances.clone(request, ADMIN, noCheck)
    expect(clones.map(({ state }) => state)).toEqual([State.RUNNING, State.RUNNING])
    const machines = [configurations, ...clones.map((each) => each.configurations)].map(
      (each) => each?.current ?? '',
    )
    expect(new Set(machines.map((text) => JSON.parse(text).uuid)).size).toBe(3)
    for (const key of ['c-1', 'c-2']) await instances.remove(key, ADMIN)
    await instances.deleteSaved('one', ADMIN)
    await instances.close()
    expect(leftovers(folder)).toEqual([])
  })

  it('are refused, by name, of what has changed, is gone, or goes on', async () => {
    await host.make()
    const { folder } = await host.suspend()
    const refused = async (text: string) => {
      await expect(clone({ count: 2 })).rejects.toMatchObject({
        code: 'FAILED_PRECONDITION',
        message: expect.stringMatching(
          new RegExp(`^clone c-1: .*${text}.*; clone c-2: .*; no clone was made$`),
        ),
      })
      expect(ofClones()).toEqual([])
      expect((await host.open()).list(ADMIN)).toEqual([])
    }
    await clone({ name: 'first' })
    await (await host.open()).remove('first', ADMIN)
    const memory = join(folder, 'memory')
    const content = readFileSync(memory)
    const flipped = Buffer.from(content)
    flipped[0x20_0000] = (flipped[0x20_0000] ?? 0) ^ 1
    writeFileSync(memory, flipped)
    await refused('memory: damaged')
    truncateSync(memory, 4096)
    await refused('memory: 4096 bytes')
    writeFileSync(memory, content)
    const disk = join(host.disks, 'root')
    utimesSync(disk, new Date(), new Date())
    await refused('root: was written since')
    await expect(clone({}, { saved: 'other' })).rejects.toMatchObject({ code: 'NOT_FOUND' })
  })

  it('are refused, by its name, when an instance takes the memory before its keeper', async () => {
    await host.make()
    const { folder } = await host.suspend()
    const { host: facts } = await readManifest(folder)
    const keep = async (_id: string, path: string) => {
      await host.resume()
      expect(existsSync(path)).toBe(false)
      throw new AgentError('NOT_FOUND', `memory of ${path}: ENOENT`)
    }
    const unused = { release: () => {}, end: noCheck, endUnused: noCheck, endOthers: noCheck }
    const opened = openClone(SavedInit.fromPartial({ name: 'one' }), {
      ...{ folder, host: facts, atStep: noCheck, checked: new Map(), withoutAgent: true },
      keepers: { ...unused, keep },
    })
    await expect(opened).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
      message: expect.stringContaining('was resumed already, as instance web'),
    })
  })

  it('that cannot be made are undone, and the others stay', async () => {
    await host.make()
    const { folder } = await host.suspend()
    const { end } = await readRing(folder, 0)
    let left = 1
    host.atStep = async (_, step) => {
      if (step === 'devices' && left-- > 0) throw new Error('asked for')
    }
    await expect(clone({ count: 4, name: 'd' })).rejects.toThrow(
      /^clone d-\d: asked for; made: d-\d, d-\d, d-\d$/,
    )
    const made = keysOf((await host.open()).list(ADMIN)).filter((key) => key?.startsWith('d-'))
    expect(made.length).toBe(3)
    // Asked for again, only the one that lacks is made.
    const boots = (await clone({ count: 4, name: 'd' })).map(({ bootId }) => bootId)
    expect(new Set(boots).size).toBe(4)
    for (const number of [1, 2, 3, 4]) await goesOn(`d-${number}`, end)
  })

  it.each(['files', 'devices', 'streams', 'cont', 'commit'])(
    'leave nothing when the daemon dies before %s, or the keeper',
    async (step) => {
      await host.make()
      const { folder, id } = await host.suspend()
      const { end } = await readRing(folder, 0)
      const reached = Promise.withResolvers<void>()
      host.atStep = async (_, at) => {
        if (at !== step) return
        reached.resolve()
        await new Promise(() => {})
      }
      void clone().catch(() => {})
      await reached.promise
      await host.leave()
      host.atStep = async () => {}
      expect((await host.open()).list(ADMIN)).toEqual([])
      expect(ofClones()).toEqual([])
      host.atStep = async (_, at) => {
        if (at === step) await endKeeper(id)
      }
      await clone().catch((error) => expect(String(error)).toMatch(/keepers.*: (ECONNREFUSED|ENOENT)/))
      host.atStep = async () => {}
      await clone()
      await goesOn('c', end)
    },
  )

  it('with private memory take no device whose daemon maps it', async () => {
    await host.make()
    await host.suspend()
    await clone()
    const device = { backend: 'link', port: 'port', vsock: { cid: 0 } }
    const request = PlugRequest.fromPartial({
      ...{ key: 'c', deviceKey: 'vsock', device, backend: { vsockDaemon: {} } },
    })
    await expect((await host.open()).plug(request, ADMIN)).rejects.toMatchObject({
      code: 'INVALID_ARGUMENT',
      message: 'backends.link.vsock_daemon: vhost-user maps the memory of the template itself',
    })
  })
})
