import { execFileSync } from 'node:child_process'
import { existsSync, mkdtempSync, readdirSync, rmdirSync, rmSync, statfsSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { INSTANCES } from '../../../../scripts/test/instances-run.ts'
import { neverAborted } from '../../../../src/base/abort.ts'
import { AgentError } from '../../../../src/base/errors.ts'
import {
  ChangeStateRequest_Change as Change,
  CloneInstanceRequest,
  type DeepPartial,
  type Instance,
  State,
} from '../../../../src/gen/microvm/instance/v1/instance.ts'
import { readRing } from '../../../../src/host/instance/holder/holder-files.ts'
import { connectQmp } from '../../../../src/host/qemu/qmp/connect.ts'
import { temporaryFolder } from '../../../support/temporary-folder.ts'
import { CountingMachines } from '../../../support/wing/counting-machine.ts'
import { BLOCK, bytesOf, io } from '../../../support/wing/layer-bytes.ts'
import { leftovers } from '../../../support/wing/leftovers.ts'
import { ADMIN } from '../../../support/wing/requests.ts'

const TIMEOUT_MS = 240_000

let host: CountingMachines

async function clone(request: DeepPartial<CloneInstanceRequest> = {}): Promise<readonly Instance[]> {
  const whole = CloneInstanceRequest.fromPartial({
    ...{ key: 'web', count: 1, name: 'c', withoutAgent: true },
    ...request,
  })
  return await (await host.open()).clone(whole, ADMIN, async () => {})
}

const keysOf = (instances: readonly Instance[]) => instances.map(({ properties }) => properties?.key)
const remove = async (key: string) => (await host.open()).remove(key, ADMIN)
const layersOf = async (key: string) => (await (await host.open()).snapshots(key, ADMIN)).layers
const present = async () => keysOf((await host.open()).list(ADMIN))

/** Fills a block of the machine's disk with a byte, as the guest would. QEMU has one client at a time. */
async function write(block: number, byte: number, key = 'web'): Promise<void> {
  await host.leave()
  const qmp = await connectQmp(join(host.folderOf(key), 'qmp.sock'), neverAborted)
  await io(qmp, 'root', `write -P ${byte} ${block * BLOCK} ${BLOCK}`)
  await io(qmp, 'root', 'flush')
  qmp.close()
}

async function bytes(key: string): Promise<readonly number[]> {
  const layers = await layersOf(key)
  const active = layers.find((layer) => layer.active)?.id ?? 0
  return bytesOf(host.folderOf(key), host.disks, 'root', active, layers, 2)
}

/** What is only there while clones are made. */
function passing(): readonly string[] {
  return ['saved/+own', 'keepers'].flatMap((name) => {
    const folder = join(host.folder, name)
    return existsSync(folder) ? readdirSync(folder) : []
  })
}

/** Resolves once the machine writes to its disk's own file again. */
async function isMerged(message = ''): Promise<void> {
  await expect.poll(() => layersOf('web'), { timeout: 20_000, message }).toEqual([])
}

/** Resolves once the machine has told 300 numbers more, each one more than that before. */
async function goesOn(key: string): Promise<void> {
  const { end } = await readRing(host.folderOf(key), 0)
  await host.counted(key, 300)
  const ring = await readRing(host.folderOf(key), 0)
  const told = [...ring.bytes.subarray(Number(end - ring.first))]
  expect(told).toEqual(told.map((_, index) => (Number(told[0]) + index) % 256))
}

beforeEach(async () => {
  host = new CountingMachines()
  await host.make()
})

afterEach(async () => {
  host.atStep = async () => {}
  const instances = await host.open()
  for (const { name } of await instances.listSaved(ADMIN)) await instances.deleteSaved(name, ADMIN)
  await host.end()
  expect(leftovers(host.folder)).toEqual([])
  expect(passing()).toEqual([])
})

describe('clones of a machine that runs', { timeout: TIMEOUT_MS }, () => {
  it('have its memory and disks of one moment, and the machine goes on', async () => {
    await write(0, 1)
    const clones = await clone({ count: 2 })
    expect(keysOf(clones)).toEqual(['c-1', 'c-2'])
    for (const each of clones) expect(each).toMatchObject({ state: State.RUNNING, madeOf: 'web' })
    for (const key of ['web', 'c-1', 'c-2']) await goesOn(key)
    expect(passing()).toEqual([])
    await write(0, 2)
    await write(1, 3, 'c-1')
    expect([await bytes('web'), await bytes('c-1'), await bytes('c-2')]).toEqual([
      [2, 0],
      [1, 3],
      [1, 0],
    ])
    const instances = await host.open()
    await expect(instances.removeSnapshot({ key: 'web', name: '', all: true }, ADMIN)).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
      message: expect.stringMatching(
        /^instance web: layer 1: instance c-[12] is on what is below it, want that removed: then it is merged$/,
      ),
    })
    // A later daemon knows who is on it; the machine can end, and start anew.
    await host.leave()
    await host.change(Change.KILL)
    await host.again()
    expect(keysOf(await clone({ count: 2 }))).toEqual(['c-1', 'c-2'])
    expect(await bytes('web')).toEqual([2, 0])
    await remove('c-1')
    expect(await layersOf('web')).toHaveLength(1)
    await remove('c-2')
    await isMerged()
    await goesOn('web')
    expect(await bytes('web')).toEqual([2, 0])
  })

  it('stay when the machine is removed, and can be cloned themselves', async () => {
    await write(0, 1)
    await clone()
    await clone({ key: 'c', name: 'd' })
    await remove('web')
    await goesOn('c')
    await remove('c')
    await goesOn('d')
    expect(await bytes('d')).toEqual([1, 0])
    // Another machine would write to the file that is below the clone's layers.
    await expect(host.make()).rejects.toMatchObject({
      message: expect.stringContaining('snapshots of instance d are on it'),
    })
  })

  it('of several moments keep each what is below them, also one that is saved', async () => {
    await write(0, 1)
    await clone()
    await write(0, 2)
    await clone({ name: 'd' })
    await write(0, 3)
    expect([await bytes('web'), await bytes('c'), await bytes('d')]).toEqual([
      [3, 0],
      [1, 0],
      [2, 0],
    ])
    // What the later one does not see any more goes to the layer that both have seen.
    await host.snapshot({ name: 'own' })
    await (await host.open()).removeSnapshot({ key: 'web', name: 'own', all: false }, ADMIN)
    expect(await layersOf('web')).toHaveLength(2)
    await remove('d')
    await expect.poll(() => layersOf('web'), { timeout: 20_000 }).toHaveLength(1)
    await host.suspend({ key: 'c', name: 'kept' })
    await host.counted('web', 10)
    expect(await layersOf('web')).toHaveLength(1)
    const instances = await host.open()
    await expect(instances.removeSnapshot({ key: 'web', name: '', all: true }, ADMIN)).rejects.toThrow(
      'saved machine kept is on what is below it',
    )
    await host.resume({ name: 'kept' }, 'c')
    await goesOn('c')
    expect(await bytes('c')).toEqual([1, 0])
    await host.suspend({ key: 'c', name: 'kept' })
    await (await host.open()).deleteSaved('kept', ADMIN)
    await isMerged()
    expect(await bytes('web')).toEqual([3, 0])
  })

  it('are made of a paused machine, and are paused', async () => {
    await host.change(Change.PAUSE)
    expect(await clone()).toMatchObject([{ state: State.PAUSED }])
    expect((await (await host.open()).get('web', ADMIN)).state).toBe(State.PAUSED)
    await host.change(Change.RUN, 'c')
    await host.counted('c', 10)
  })

  it('are refused by name, and the machine goes on as it was', async () => {
    const refused = async (request: DeepPartial<CloneInstanceRequest>, error: object) => {
      await expect(clone(request)).rejects.toMatchObject(error)
      await isMerged()
      expect(await present()).toEqual(['web'])
      expect(passing()).toEqual([])
    }
    await refused({ key: 'other' }, { code: 'NOT_FOUND', message: 'instance other: not found' })
    await refused(
      { name: 'web' },
      { code: 'FAILED_PRECONDITION', message: 'instance web: key: differs from the present one' },
    )
    await refused(
      { withoutAgent: false },
      {
        code: 'FAILED_PRECONDITION',
        message: expect.stringMatching(/was saved without its agent.*; no clone was made$/),
      },
    )
    host.atStep = async (_, step) => {
      if (step === 'devices') throw new AgentError('RESOURCE_EXHAUSTED', 'no space left')
    }
    await refused({}, { code: 'RESOURCE_EXHAUSTED', message: 'layers: no space left' })
    host.atStep = async () => {}
    await goesOn('web')
    await host.change(Change.KILL)
    await refused(
      {},
      { code: 'FAILED_PRECONDITION', message: 'instance web: stopped, want paused or running' },
    )
  })

  it('that could not be made are made by the same call, and the others stay', async () => {
    let left = 1
    host.atStep = async (operation, step) => {
      if (operation === 'import' && step === 'devices' && left-- > 0) throw new Error('asked for')
    }
    await expect(clone({ count: 3 })).rejects.toThrow(/^clone c-\d: asked for; made: c-\d, c-\d$/)
    host.atStep = async () => {}
    const before = (await (await host.open()).list(ADMIN)).map(({ bootId }) => bootId)
    const boots = (await clone({ count: 3 })).map(({ bootId }) => bootId)
    expect(before.filter((id) => boots.includes(id))).toHaveLength(2)
    for (const key of ['web', 'c-1', 'c-2', 'c-3']) await goesOn(key)
  })
})

describe('clones of a machine on a full disk', { timeout: TIMEOUT_MS }, () => {
  it('are undone, and the machine goes on', async () => {
    const small = mkdtempSync('/run/full-')
    execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=20m,mode=755', 'tmpfs', small])
    try {
      await host.end()
      host = new CountingMachines(small, temporaryFolder())
      await host.make()
      let failures = 0
      for (let [room, isMade] = [0, false]; !isMade; room = room * 2 + 4) {
        const { bavail, bsize } = statfsSync(small)
        writeFileSync(join(small, 'filler'), Buffer.alloc(Math.max(0, bavail - room) * bsize, 1))
        const failure = await clone().then(
          () => undefined,
          (error) => error,
        )
        rmSync(join(small, 'filler'))
        isMade = failure === undefined
        if (isMade) break
        failures += 1
        const message = `room for ${room} blocks`
        expect(failure, message).toMatchObject({
          code: expect.stringMatching(/^(RESOURCE_EXHAUSTED|FAILED_PRECONDITION)$/),
        })
        await goesOn('web')
        await isMerged(message)
        expect([await present(), passing()], message).toEqual([['web'], []])
      }
      expect(failures).toBeGreaterThan(2)
      await goesOn('c')
      await host.end()
    } finally {
      await host.end()
      host = new CountingMachines()
      execFileSync('umount', ['-l', small])
      rmdirSync(small)
    }
  })
})

const EXPORT = [
  ...['folder', 'rings', 'overlays', 'stop', 'memory', 'layers', 'devices', 'disks', 'cont', 'attach'],
  ...['digests', 'manifest', 'end'],
]
const IMPORT = ['files', 'devices', 'streams', 'cont', 'commit', 'repair']
/** `npm run instances` kills QEMU and the holder at all steps, and this group at a few. */
const ALL = process.env[INSTANCES.lives] !== undefined
const FEW: readonly string[] = ['devices', 'disks', 'manifest']

describe('a machine that is being cloned goes on, with whole clones or none', { timeout: TIMEOUT_MS }, () => {
  it('after a kill -9 of its daemon at any step', async () => {
    await write(0, 1)
    for (const [operation, steps] of [['export', EXPORT] as const, ['import', IMPORT] as const])
      for (const step of steps) {
        const message = `${operation} ${step}`
        await host.killAt({ killed: 'daemon', operation, step }, () => clone())
        await (await host.open()).get('web', ADMIN)
        await goesOn('web')
        const isWhole = operation === 'import' && step === 'repair'
        // A clone without an agent has no repair to be told of.
        await expect.poll(present, { message }).toEqual(isWhole ? ['c', 'web'] : ['web'])
        if (isWhole) await remove('c')
        await isMerged(message)
        await expect.poll(passing, { message }).toEqual([])
        expect(await bytes('web'), message).toEqual([1, 0])
      }
  })

  it.each(['qemu', 'holder'] as const)('after a kill -9 of its %s, with its disk', async (killed) => {
    await write(0, 1)
    for (const step of EXPORT.filter((each) => ALL || FEW.includes(each))) {
      await host.killAt({ killed, operation: 'export', step }, () => clone())
      const state = async () => (await (await host.open()).get('web', ADMIN)).state
      await expect.poll(state, { timeout: 10_000, message: step }).toBe(State.STOPPED)
      // Once all is in files, the clones are made of it.
      for (const key of await present()) if (key === 'c') await remove('c')
      expect(passing(), step).toEqual([])
      await host.again()
      expect(await bytes('web'), step).toEqual([1, 0])
      await isMerged(step)
    }
  })

  it('after the removal of the machine while they are made', async () => {
    await write(0, 1)
    let left = 1
    host.atStep = async (operation, step) => {
      if (operation === 'import' && step === 'files' && left-- > 0) await remove('web')
    }
    expect(keysOf(await clone({ count: 2 }))).toEqual(['c-1', 'c-2'])
    expect(await present()).toEqual(['c-1', 'c-2'])
    await goesOn('c-1')
    expect(await bytes('c-2')).toEqual([1, 0])
  })
})
