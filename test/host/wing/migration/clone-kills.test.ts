import { existsSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { INSTANCES } from '../../../../scripts/test/instances-run.ts'
import { CloneInstanceRequest, State } from '../../../../src/gen/microvm/instance/v1/instance.ts'
import { findHolder } from '../../../../src/host/instance/holder/start-holder.ts'
import { memoryRegistry } from '../../../../src/host/instance/registry/memory-registry.ts'
import { TABLES } from '../../../../src/host/instance/registry/registry.ts'
import { readManifest } from '../../../../src/host/migration/manifest.ts'
import { checkContent } from '../../../../src/host/migration/saved-folder.ts'
import { CountingMachines } from '../../../support/wing/counting-machine.ts'
import { leftovers } from '../../../support/wing/leftovers.ts'
import { ADMIN } from '../../../support/wing/requests.ts'

const TIMEOUT_MS = 120_000
const CLONES = ['c-1', 'c-2', 'c-3'] as const
const FEW: readonly string[] = ['files', 'devices', 'commit']
const STEPS = ['files', 'devices', 'streams', 'cont', 'commit', 'repair'] as const

/** `npm run instances` kills at all steps, and this group at a few. */
const AT = process.env[INSTANCES.lives] === undefined ? STEPS.filter((step) => FEW.includes(step)) : STEPS

/** What becomes of the clone: it runs, is known as stopped, or is not there. */
type Outcome = 'runs' | 'stopped' | 'none'

/** All of the clones stand at a step; then the process of one is killed. */
const EXPECTED: Readonly<Record<'qemu' | 'holder', readonly Outcome[]>> = {
  // There is none yet at the first step. Once its guest runs, a clone is a machine that can die.
  qemu: ['runs', 'none', 'none', 'none', 'stopped', 'stopped'],
  holder: ['runs', 'none', 'none', 'none', 'stopped', 'stopped'],
}

describe('one of three clones that are made at once', { timeout: TIMEOUT_MS }, () => {
  const registry = memoryRegistry()
  const host = new CountingMachines(undefined, undefined, registry)
  /** All that the clones have had. */
  const taps = new Set<string>()
  let saved: Awaited<ReturnType<CountingMachines['suspend']>>
  let before: Awaited<ReturnType<typeof left>>

  beforeAll(async () => {
    const nic = { mac: '52:54:00:00:00:08' }
    await host.make('web', {
      devices: { lan: { backend: 'lan-tap', slot: 8, nic } },
      backends: { 'lan-tap': { tap: { interfaceName: `ck${process.pid}` } } },
    })
    saved = await host.suspend()
    await cloneAt('files', () => {})
    await removeClones()
    // The keeper ends after the last clone.
    const late = AbortSignal.timeout(TIMEOUT_MS)
    do {
      await delay(10, undefined, { signal: late })
      before = await left()
    } while (before.others.some((each) => each.includes('/keepers/')))
  }, TIMEOUT_MS)

  afterAll(async () => {
    const instances = await host.open()
    await instances.deleteSaved('one', ADMIN)
    await host.end()
    expect(leftovers(host.folder)).toEqual([])
  })

  /** What there is of the host, but for the instances' own life. */
  async function left() {
    const rows = TABLES.map(async (table) => [table, ...(await registry.load(table)).keys()])
    return {
      rows: await Promise.all(rows),
      others: leftovers(host.folder).toSorted(),
      taps: [...taps].filter((name) => existsSync(`/sys/class/net/${name}`)),
      folders: readdirSync(host.folder).toSorted(),
    }
  }

  /** Makes the clones, and calls `kill` once all of them are at the step. */
  async function cloneAt(step: string, kill: () => void | Promise<void>): Promise<void> {
    const instances = await host.open()
    const all = Promise.withResolvers<void>()
    let arrived = 0
    host.atStep = async (_, at) => {
      if (at !== step) return
      arrived += 1
      if (arrived === CLONES.length) {
        for (const { specification } of instances.list(ADMIN))
          taps.add(specification?.backends['lan-tap']?.tap?.interfaceName ?? '')
        all.resolve(kill())
      }
      await all.promise
    }
    const request = CloneInstanceRequest.fromPartial({
      ...{ saved: 'one', name: 'c', count: CLONES.length, withoutAgent: true },
    })
    await instances.clone(request, ADMIN, async () => {}).catch(() => {})
    host.atStep = async () => {}
    expect(taps.size % CLONES.length).toBe(0)
  }

  async function outcomesAt(...at: Parameters<typeof cloneAt>): Promise<readonly Outcome[]> {
    await cloneAt(...at)
    return await Promise.all(CLONES.map(outcomeOf))
  }

  /** The end of a QEMU is followed after the change. */
  async function outcomeOf(key: string): Promise<Outcome> {
    const instances = await host.open()
    const states = async () => {
      const found = await instances.get(key, ADMIN).catch(() => undefined)
      const isAlive = host.pidsOf('qemu', key).length === 1
      return [found, isAlive === (found?.state === State.RUNNING)] as const
    }
    await expect.poll(async () => (await states())[1], { message: key }).toBe(true)
    const [found] = await states()
    if (found === undefined) return 'none'
    return found.state === State.RUNNING ? 'runs' : 'stopped'
  }

  async function removeClones(): Promise<void> {
    const instances = await host.open()
    for (const { properties } of instances.list(ADMIN)) await instances.remove(properties?.key ?? '', ADMIN)
  }

  async function unharmed(): Promise<void> {
    await removeClones()
    await expect.poll(left, { timeout: 10_000 }).toEqual(before)
    await checkContent(saved.folder, await readManifest(saved.folder))
  }

  const table = (['qemu', 'holder'] as const).flatMap((killed) =>
    AT.map((step) => [killed, step, EXPECTED[killed][STEPS.indexOf(step)] ?? 'none'] as const),
  )
  it.each(table)(
    'takes nobody with it when its %s is killed before %s: after it, one %s',
    async (killed, step, outcome) => {
      const kill = async () => {
        for (const pid of host.pidsOf(killed, 'c-2')) process.kill(pid, 'SIGKILL')
        // Until it is dead, it may still answer.
        await expect.poll(() => host.pidsOf('qemu', 'c-2')).toEqual([])
      }
      expect(await outcomesAt(step, kill)).toEqual(['runs', outcome, 'runs'])
      for (const key of ['c-1', 'c-3']) await host.counted(key, 10)
      await unharmed()
    },
  )

  it.each(AT)(
    'takes nobody with it when their keeper is killed before %s, unless all need it still',
    async (step) => {
      const kill = async () => {
        const keeper = await findHolder(join(host.folder, 'keepers', saved.id))
        process.kill(keeper?.pid ?? 0, 'SIGKILL')
        await keeper?.ended
      }
      const outcome = step === 'files' ? 'none' : 'runs'
      expect(await outcomesAt(step, kill)).toEqual(CLONES.map(() => outcome))
      await removeClones()
      expect(await outcomesAt('files', () => {})).toEqual(['runs', 'runs', 'runs'])
      await unharmed()
    },
  )
})
