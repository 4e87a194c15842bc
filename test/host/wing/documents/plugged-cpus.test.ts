import { readdirSync } from 'node:fs'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterEach, describe, expect, it } from 'vitest'
import { neverAborted } from '../../../../src/base/abort.ts'
import {
  ChangeStateRequest_Change as Change,
  EnsureInstanceRequest,
  type Instance,
  DeviceStatus_Plug as Plug,
  PlugRequest,
} from '../../../../src/gen/microvm/instance/v1/instance.ts'
import { memoryRegistry } from '../../../../src/host/instance/registry/memory-registry.ts'
import { readMachine } from '../../../../src/host/machine/document/document.ts'
import { connectQmp } from '../../../../src/host/qemu/qmp/connect.ts'
import { temporaryFolder } from '../../../support/temporary-folder.ts'
import { leftovers } from '../../../support/wing/leftovers.ts'
import { openReal } from '../../../support/wing/real-wing.ts'
import { ADMIN } from '../../../support/wing/requests.ts'
import { tinyGuest } from '../../../support/wing/tiny-guest.ts'

const undo: (() => unknown)[] = []

afterEach(async () => {
  for (const each of undo.splice(0).reverse()) await each()
})

/** An instance that has one CPU and room for three. */
async function openInstance({ stability = 'fixed', more = '' } = {}) {
  const folder = temporaryFolder()
  const catalogue = join(folder, 'catalogue.toml')
  const image = `[images.own]\npath = "${tinyGuest(folder, 'idle')}"\n`
  await writeFile(catalogue, `roots = ["${folder}"]\n${image}`, { mode: 0o600 })
  const registry = memoryRegistry()
  let instances = await openReal(folder, registry, { catalogue })
  undo.push(async () => {
    await instances.remove('web', ADMIN)
    await instances.close()
    expect(leftovers(folder)).toEqual([])
  })
  const cells = "[{cpus: '0-1', memory: 32}, {cpus: '2-3', memory: 32}]"
  const cpu = '{present: 1, topology: {sockets: 2, cores: 2}}'
  const features = `{memory: 64, firmware: {kernel: own}, cpu: ${cpu}, numa: {cells: ${cells}}${more}}`
  const document = `{kind: VM, spec: {stability: ${stability}, features: ${features}}}`
  await instances.ensure(EnsureInstanceRequest.fromPartial({ properties: { key: 'web' }, document }), ADMIN)
  return {
    plug: (deviceKey: string, features = 'cpu: 1') =>
      instances.plug(PlugRequest.fromPartial({ key: 'web', deviceKey, features }), ADMIN),
    unplug: (deviceKey: string) => instances.unplug({ key: 'web', deviceKey, graceMs: 50 }, ADMIN),
    change: (change: Change) => instances.changeState({ key: 'web', change, graceMs: 0 }, ADMIN),
    /** The CPUs of QEMU, while no daemon runs. */
    cpus: async () => {
      await instances.close()
      const found = await cpusIn(folder)
      instances = await openReal(folder, registry, { catalogue })
      return found
    },
  }
}

/** By socket, core and NUMA node. */
async function cpusIn(folder: string): Promise<readonly string[]> {
  const [own = ''] = readdirSync(join(folder, 'instances'))
  const qmp = await connectQmp(join(folder, 'instances', own, 'qmp.sock'), neverAborted)
  try {
    const all = await qmp.execute('query-hotpluggable-cpus', {}, neverAborted)
    const present = all.filter((each) => each['qom-path'] !== undefined)
    const places = present.map(({ props }) => ['socket-id', 'core-id', 'node-id'].map((name) => props[name]))
    return places.map((place) => place.join(' ')).sort()
  } finally {
    qmp.close()
  }
}

/** The keys of the CPUs that were plugged into each configuration. */
function pluggedIn({ configurations }: Instance) {
  const keysOf = (text = '') =>
    Object.entries(readMachine(JSON.parse(text)).devices).flatMap(([key, { kind }]) =>
      kind === 'cpu' ? [key] : [],
    )
  const { current, desired, saved } = configurations ?? {}
  return { saved: keysOf(saved), desired: keysOf(desired), current: keysOf(current) }
}

describe('a CPU of a document', () => {
  it.each(['fixed', 'latest'])(
    'is plugged in and out, also at the next cold boot, stability %s',
    async (stability) => {
      const { change, cpus, plug, unplug } = await openInstance({ stability })
      const second = await plug('second')
      expect([second.devices.second?.plug, second.configurations?.cpus]).toEqual([Plug.PRESENT, 2])
      await plug('third')
      expect(await cpus()).toEqual(['0 0 0', '0 1 0', '1 0 1'])
      const left = await unplug('second')
      expect([left.devices.second?.plug, left.configurations?.cpus]).toEqual([Plug.LEAVING, 3])
      expect(pluggedIn(left)).toEqual({
        saved: ['third'],
        desired: ['third'],
        current: ['second', 'third'],
      })
      const same = await plug('third')
      expect(pluggedIn(same)).toEqual(pluggedIn(left))
      await change(Change.KILL)
      const booted = await change(Change.RUN)
      expect([booted.devices.second, booted.configurations?.cpus]).toEqual([undefined, 2])
      expect(pluggedIn(booted)).toEqual({ saved: ['third'], desired: ['third'], current: ['third'] })
      expect(await cpus()).toEqual(['0 0 0', '1 0 1'])
    },
  )

  it('is refused by its field, and where the machine has no room for it', async () => {
    const { cpus, plug } = await openInstance()
    for (const [features, message] of [
      ['cpu: 2', 'features.cpu: want 1, a CPU for each key'],
      ['cpu: {model: EPYC}', 'features.cpu: want 1, a CPU for each key'],
      ['{cpu: 1, rng: true}', 'features: want one of storage, network, cpu with one device'],
    ] as const)
      await expect(plug('second', features)).rejects.toThrow(message)
    await expect(plug('console0')).rejects.toThrow('device console0: already plugged')
    for (const key of ['second', 'third', 'fourth']) await plug(key)
    await expect(plug('fifth')).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
      message: 'no room for another CPU, all 4 are present',
    })
    expect(await cpus()).toHaveLength(4)
  })

  it('is refused by a machine whose guest could not learn of it', async () => {
    const { cpus, plug } = await openInstance({ more: ', system: {type: linux, acpi: false}' })
    await expect(plug('second')).rejects.toThrow('no ACPI')
    expect(await cpus()).toHaveLength(1)
  })
})
