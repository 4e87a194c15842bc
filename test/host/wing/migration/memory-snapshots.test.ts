import { execFileSync } from 'node:child_process'
import {
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmdirSync,
  rmSync,
  statfsSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { neverAborted } from '../../../../src/base/abort.ts'
import { AgentError } from '../../../../src/base/errors.ts'
import {
  ChangeStateRequest_Change as Change,
  Device,
  File_Access,
  SnapshotRequest,
  State,
} from '../../../../src/gen/microvm/instance/v1/instance.ts'
import { readRing } from '../../../../src/host/instance/holder/holder-files.ts'
import { memoryRegistry } from '../../../../src/host/instance/registry/memory-registry.ts'
import { connectQmp } from '../../../../src/host/qemu/qmp/connect.ts'
import { temporaryFolder } from '../../../support/temporary-folder.ts'
import { CountingMachines } from '../../../support/wing/counting-machine.ts'
import { BLOCK, bytesOf, io } from '../../../support/wing/layer-bytes.ts'
import { leftovers } from '../../../support/wing/leftovers.ts'
import { DOCUMENT_LIFE } from '../../../support/wing/lives/document-life.ts'
import { documentLifePlan, image, openReal } from '../../../support/wing/real-wing.ts'
import { ADMIN, file } from '../../../support/wing/requests.ts'

const TIMEOUT_MS = 240_000

/** Fills a block of the disk with a byte, as the guest would. QEMU has one client at a time, and tells of it on its console. */
async function write(host: CountingMachines, block: number, byte: number): Promise<void> {
  await host.leave()
  const qmp = await connectQmp(join(host.folderOf(), 'qmp.sock'), neverAborted)
  await io(qmp, 'root', `write -P ${byte} ${block * BLOCK} ${BLOCK}`)
  await io(qmp, 'root', 'flush')
  qmp.close()
}

async function bytes(host: CountingMachines): Promise<readonly number[]> {
  const { layers } = await (await host.open()).snapshots('web', ADMIN)
  const active = layers.find((layer) => layer.active)?.id ?? 0
  return bytesOf(host.folderOf(), host.disks, 'root', active, layers, 2)
}

/** Takes a snapshot, and returns it with what the guest had told when it stood still. */
async function snapshotAt(host: CountingMachines) {
  let told = { end: 0n, last: 0 }
  host.atStep = async (_, at) => {
    if (at === 'memory') told = await host.quiet()
  }
  const snapshot = await host.snapshot()
  host.atStep = async () => {}
  return { ...told, snapshot }
}

/** Resolves once the machine has told what follows the number `last`, each one more than that before. */
async function goesOnFrom(host: CountingMachines, end: bigint, last: number): Promise<void> {
  await host.counted('web', 300)
  const ring = await readRing(host.folderOf(), 0)
  const told = [...ring.bytes.subarray(Number(end - ring.first))]
  expect(told).toEqual(told.map((_, index) => (last + 1 + index) % 256))
}

/** The id that QEMU shows the guest. */
function generationId(host: CountingMachines): string | undefined {
  const [pid] = host.pidsOf('qemu')
  return /guid=([0-9a-f-]+)/.exec(readFileSync(`/proc/${pid}/cmdline`, 'utf8'))?.[1]
}

const filesIn = (host: CountingMachines, name: string) => {
  const folder = join(host.folderOf(), name)
  return existsSync(folder) ? readdirSync(folder) : []
}

/** Resolves once nothing is left of a snapshot that was not taken, and the guest goes on. */
async function expectNothing(host: CountingMachines, step: string): Promise<void> {
  const instances = await host.open()
  const left = async () => {
    const { layers, snapshots } = await instances.snapshots('web', ADMIN)
    return [...layers, ...snapshots, ...filesIn(host, 'disks'), ...filesIn(host, 'memories')]
  }
  await expect.poll(left, { timeout: 20_000, message: step }).toEqual([])
}

describe('a snapshot with memory', { timeout: TIMEOUT_MS }, () => {
  it('leaves the machine running, which goes back to that moment as often as it is asked to', async () => {
    const host = new CountingMachines()
    await host.make('web', { board: { generationId: true } })
    const generations = [generationId(host)]
    await write(host, 0, 1)
    const { end: keptEnd, last, snapshot } = await snapshotAt(host)
    expect(snapshot).toMatchObject({ memory: true, disks: [{ device: 'root', layer: 0 }] })
    expect(Number(snapshot.stillUs)).toBeGreaterThan(0)
    await goesOnFrom(host, keptEnd, last)
    const { snapshots } = await (await host.open()).snapshots('web', ADMIN)
    expect(Number(snapshots[0]?.memoryBytes)).toBeGreaterThan(0)
    expect(snapshot.memoryBytes).toBe(snapshots[0]?.memoryBytes)
    for (const round of [2, 3]) {
      await write(host, 0, round)
      await write(host, 1, round)
      const { bootId } = await (await host.open()).get('web', ADMIN)
      await expect(
        (await host.open()).revert({ key: 'web', name: 'one' }, async () => {}, ADMIN),
      ).rejects.toMatchObject({ message: 'instance web: not stopped, want it stopped' })
      await host.change(Change.KILL)
      const { end } = await readRing(host.folderOf(), 0)
      const reverted = await host.revert()
      expect(reverted).toMatchObject({ state: State.RUNNING })
      expect(reverted.bootId).not.toBe(bootId)
      generations.push(generationId(host))
      await goesOnFrom(host, end, last)
      expect(await bytes(host)).toEqual([1, 0])
    }
    expect(generations).not.toContain(undefined)
    expect(new Set(generations).size).toBe(3)
    await expect(host.suspend()).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
      message: 'snapshot one: has memory, which stays with the instance, want it removed',
    })
    await (await host.open()).removeSnapshot({ key: 'web', name: 'one', all: false }, ADMIN)
    expect(filesIn(host, 'memories')).toEqual([])
    await host.end()
    expect(leftovers(host.folder)).toEqual([])
  })

  it('of a paused machine goes on paused, and may be one of several', async () => {
    const host = new CountingMachines()
    await host.make()
    await host.snapshot()
    await host.counted('web', 300)
    await host.change(Change.PAUSE)
    const { last } = await host.quiet()
    expect(await host.snapshot({ name: 'two' })).toMatchObject({ stillUs: 0n })
    expect((await (await host.open()).get('web', ADMIN)).state).toBe(State.PAUSED)
    await host.revert('one')
    await host.counted('web', 10)
    expect(await host.revert('two')).toMatchObject({ state: State.PAUSED })
    const { end } = await host.quiet()
    await host.change(Change.RUN)
    await goesOnFrom(host, end, last)
    await (await host.open()).removeSnapshot({ key: 'web', name: '', all: true }, ADMIN)
    await host.counted('web', 10)
    await host.end()
    expect(leftovers(host.folder)).toEqual([])
  })

  it('is undone where a step fails, and the guest goes on with each byte once', async () => {
    const host = new CountingMachines()
    await host.make('web', { board: { generationId: true } })
    const generation = generationId(host)
    for (const step of EXPORT) {
      host.atStep = async (_, at) => {
        if (at === step) throw new AgentError('UNAVAILABLE', 'asked for')
      }
      await expect(host.snapshot(), step).rejects.toThrow('asked for')
      await host.counted('web', 300)
      await host.told()
      await expectNothing(host, step)
    }
    host.atStep = async () => {}
    await host.snapshot()
    for (const step of ['files', 'memory', 'devices', 'cont']) {
      await host.change(Change.KILL)
      const before = (await (await host.open()).snapshots('web', ADMIN)).layers
      host.atStep = async (_, at) => {
        if (at === step) throw new AgentError('UNAVAILABLE', 'asked for')
      }
      await expect(host.revert(), step).rejects.toThrow('asked for')
      expect((await (await host.open()).get('web', ADMIN)).state, step).toBe(State.STOPPED)
      const { layers } = await (await host.open()).snapshots('web', ADMIN)
      expect(
        layers.map(({ active, id }) => [id, active]),
        step,
      ).toEqual(before.map(({ active, id }) => [id, active]))
      host.atStep = async () => {}
      await host.again()
      expect(generationId(host), step).toBe(generation)
    }
    await host.revert()
    await host.counted('web', 10)
    await host.end()
    expect(leftovers(host.folder)).toEqual([])
  })

  it('of a document goes back to the machine that ran, with what was plugged in', async () => {
    const folder = temporaryFolder()
    const plan = documentLifePlan(join(folder, 'images'))
    const instances = await openReal(folder, memoryRegistry(), { catalogue: plan.catalogue })
    await DOCUMENT_LIFE.ensure?.(instances, plan)
    await DOCUMENT_LIFE.plugDisk?.(instances, plan)
    const change = (to: Change) => instances.changeState({ key: 'web', change: to, graceMs: 0 }, ADMIN)
    await change(Change.RUN)
    const { configurations } = await instances.get('web', ADMIN)
    const request = { key: 'web', name: 'one', memory: true, withoutAgent: true }
    await instances.snapshot(SnapshotRequest.fromPartial(request), ADMIN)
    await change(Change.KILL)
    const reverted = await instances.revert({ key: 'web', name: 'one' }, async () => {}, ADMIN)
    expect([reverted.state, reverted.configurations?.current]).toEqual([
      State.RUNNING,
      configurations?.current,
    ])
    await instances.remove('web', ADMIN)
    await instances.close()
    expect(leftovers(folder)).toEqual([])
  })

  it('is refused by name where something cannot be kept, and the machine goes on', async () => {
    const host = new CountingMachines()
    const disk = (name: string) => file(image(host.disks, name, 16))
    const added = { slot: 7, backend: 'more-file' }
    await host.make('web', {
      devices: { more: Device.fromPartial({ ...added, disk: { serial: 'more', noSnapshot: true } }) },
      backends: { 'more-file': disk('more') },
    })
    const field = 'devices.more'
    await expect(host.snapshot()).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
      message: `${field}: with no_snapshot, its content cannot be kept with the memory`,
    })
    await expect(host.snapshot({ disks: ['root'] })).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' })
    await host.change(Change.KILL)
    await expect(host.snapshot()).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
      message: 'instance web: stopped, want paused or running',
    })
    await (await host.open()).remove('web', ADMIN)
    const nvme = Device.fromPartial({ ...added, disk: { serial: 'more', nvme: true } })
    await host.make('web', { devices: { more: nvme }, backends: { 'more-file': disk('more') } })
    await expect(host.snapshot()).rejects.toMatchObject({
      message: `${field}: an NVMe disk cannot be saved, want a virtio one`,
    })
    await (await host.open()).remove('web', ADMIN)
    const scratch = { file: { path: join(host.disks, 'more'), access: File_Access.SCRATCH } }
    const virtio = Device.fromPartial({ ...added, disk: { serial: 'more' } })
    await host.make('web', { devices: { more: virtio }, backends: { 'more-file': scratch } })
    await expect(host.snapshot()).rejects.toMatchObject({
      message: `${field}: what the guest has written to access SCRATCH is not saved, want READ_WRITE`,
    })
    await host.counted('web', 10)
    await expectNothing(host, 'refused')
    await host.end()
    expect(leftovers(host.folder)).toEqual([])
  })

  it('is undone on a full disk, and the guest goes on', async () => {
    const small = mkdtempSync('/run/full-')
    execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=16m,mode=755', 'tmpfs', small])
    try {
      const host = new CountingMachines(small, temporaryFolder())
      await host.make()
      let [failures, isTaken] = [0, false]
      for (let room = 0; !isTaken; room = room * 2 + 4) {
        const { bavail, bsize } = statfsSync(small)
        writeFileSync(join(small, 'filler'), Buffer.alloc(Math.max(0, bavail - room) * bsize, 1))
        const failure = await host.snapshot().then(
          () => undefined,
          (error) => error,
        )
        rmSync(join(small, 'filler'))
        isTaken = failure === undefined
        if (isTaken) break
        failures += 1
        expect(failure).toMatchObject({
          code: expect.stringMatching(/^(RESOURCE_EXHAUSTED|FAILED_PRECONDITION)$/),
        })
        await host.counted('web', 300)
        await host.told()
        await expectNothing(host, `room for ${room} blocks`)
      }
      expect(failures).toBeGreaterThan(1)
      await host.revert()
      await host.counted('web', 10)
      await host.end()
    } finally {
      execFileSync('umount', ['-l', small])
      rmdirSync(small)
    }
  })
})

const EXPORT = [
  ...['folder', 'rings', 'overlays', 'stop', 'memory', 'layers', 'devices', 'cont', 'attach'],
  ...['digests', 'manifest'],
]
const IMPORT = ['files', 'memory', 'devices', 'streams', 'cont', 'commit', 'repair']

describe('a snapshot with memory is there whole or not at all', { timeout: TIMEOUT_MS }, () => {
  it('after a kill -9 of its daemon at any step, and the machine goes on', async () => {
    const host = new CountingMachines()
    await host.make()
    for (const step of EXPORT) {
      await host.killAt({ killed: 'daemon', operation: 'export', step }, () => host.snapshot())
      expect((await (await host.open()).get('web', ADMIN)).state, step).toBe(State.RUNNING)
      await host.counted('web', 300)
      await host.told()
      await expectNothing(host, step)
    }
    await host.killAt({ killed: 'daemon', operation: 'export', step: 'end' }, () => host.snapshot())
    expect((await (await host.open()).snapshots('web', ADMIN)).snapshots).toMatchObject([{ name: 'one' }])
    await host.killAt({ killed: 'daemon', operation: 'export', step: 'overlays' }, () =>
      host.snapshot({ name: 'two' }),
    )
    for (const step of IMPORT) {
      if (step === IMPORT[0]) await host.open()
      await host.change(Change.KILL)
      await host.killAt({ killed: 'daemon', operation: 'import', step }, () => host.revert())
      const { state } = await (await host.open()).get('web', ADMIN)
      expect(state, step).toBe(step === 'commit' || step === 'repair' ? State.RUNNING : State.STOPPED)
      if (state === State.STOPPED) await host.revert()
      await host.counted('web', 10)
    }
    await host.end()
    expect(leftovers(host.folder)).toEqual([])
  })

  it('after a kill -9 of its QEMU, with what was written to its disk', async () => {
    const host = new CountingMachines()
    await host.make()
    await write(host, 0, 1)
    for (const step of ['memory', 'devices', 'cont', 'digests']) {
      await host.killAt({ killed: 'qemu', operation: 'export', step }, () => host.snapshot({ name: step }))
      const state = async () => (await (await host.open()).get('web', ADMIN)).state
      await expect.poll(state, { timeout: 10_000, message: step }).toBe(State.STOPPED)
      await host.again()
      // What the failed snapshot has left is merged meanwhile.
      await expect.poll(() => bytes(host), { timeout: 10_000, message: step }).toEqual([1, 0])
    }
    const { snapshots } = await (await host.open()).snapshots('web', ADMIN)
    expect(snapshots.map(({ name }) => name)).toEqual(filesIn(host, 'memories'))
    for (const { name } of snapshots) await host.revert(name)
    await host.end()
    expect(leftovers(host.folder)).toEqual([])
  })
})
