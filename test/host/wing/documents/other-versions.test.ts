import { readFileSync } from 'node:fs'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterEach, describe, expect, it } from 'vitest'
import {
  ChangeStateRequest_Change as Change,
  EnsureInstanceRequest,
  DeviceStatus_Plug as Plug,
  State,
} from '../../../../src/gen/microvm/instance/v1/instance.ts'
import type { Instances } from '../../../../src/host/instance/instances.ts'
import { recordOf, recordRow } from '../../../../src/host/instance/record/instance-record.ts'
import { memoryRegistry } from '../../../../src/host/instance/registry/memory-registry.ts'
import { DEFAULTS, type Defaults } from '../../../../src/host/machine/defaults.ts'
import { OTHER_DEFAULTS } from '../../../support/host-wing/other-defaults.ts'
import { temporaryFolder } from '../../../support/temporary-folder.ts'
import { leftovers } from '../../../support/wing/leftovers.ts'
import { image, openReal } from '../../../support/wing/real-wing.ts'
import { ADMIN } from '../../../support/wing/requests.ts'

const undo: (() => unknown)[] = []
afterEach(async () => {
  for (const each of undo.splice(0).reverse()) await each()
})

/** An instance of a document, and a way to open it by a daemon with other defaults. */
async function made(stability: 'fixed' | 'latest') {
  const folder = temporaryFolder()
  const catalogue = join(folder, 'catalogue.toml')
  const volume = `[volumes.data]\npath = "${image(folder, 'data', 8)}"\n`
  await writeFile(catalogue, `roots = ["${folder}"]\n${volume}`, { mode: 0o600 })
  const registry = memoryRegistry()
  let instances: Instances = await openReal(folder, registry, { catalogue })
  undo.push(async () => {
    for (const { properties } of instances.list(ADMIN)) await instances.remove(properties?.key ?? '', ADMIN)
    await instances.close()
    expect(leftovers(folder)).toEqual([])
  })
  const document = `{kind: VM, spec: {stability: ${stability}, features: {memory: 64, storage: [{source: data}]}}}`
  const request = EnsureInstanceRequest.fromPartial({ properties: { key: 'web' }, document })
  const first = await instances.ensure(request, ADMIN)
  const reopen = async (defaults: Defaults, change = (machine: string) => machine) => {
    await instances.close()
    const record = recordOf((await registry.load('instances')).get('web') ?? Buffer.alloc(0))
    const { document } = record
    if (document === undefined) throw new Error('no document')
    const [saved, desired, current] = [document.saved, document.desired, document.current].map(change)
    const changed = { ...document, saved: saved ?? '', desired: desired ?? '', current: current ?? '' }
    await registry.commit([recordRow('web', { ...record, document: changed })])
    instances = await openReal(folder, registry, { catalogue, defaults })
    return instances
  }
  return { first, reopen }
}

const change = (instances: Instances, to: Change) =>
  instances.changeState({ key: 'web', change: to, graceMs: 0 }, ADMIN)
/** Of QEMU, but for what is of one start. */
const hardware = (pid: number) =>
  readFileSync(`/proc/${pid}/cmdline`, 'utf8')
    .split('\0')
    .filter((word) => !word.startsWith('base='))

describe('a daemon with other defaults', () => {
  it('starts the machine of the document as it was', async () => {
    const { first, reopen } = await made('fixed')
    const before = hardware(first.qemuPid)
    const instances = await reopen(OTHER_DEFAULTS)
    await change(instances, Change.KILL)
    const { qemuPid, configurations } = await change(instances, Change.RUN)
    expect(hardware(qemuPid)).toEqual(before)
    expect(configurations?.saved).toBe(first.configurations?.saved)
  })

  it('gives a context id to a machine that is expanded anew with a vsock device', async () => {
    const { first, reopen } = await made('latest')
    expect(first.cid).toBe(0)
    const instances = await reopen({ ...DEFAULTS, present: { ...DEFAULTS.present, vsock: true } })
    await change(instances, Change.KILL)
    const second = await change(instances, Change.RUN)
    expect(second.devices.vsock0).toMatchObject({ plug: Plug.PRESENT })
    expect(second.cid).toBeGreaterThan(2)
    await change(instances, Change.KILL)
    expect((await change(instances, Change.RUN)).cid).toBe(second.cid)
  })
})

describe('a machine that a later version has written', () => {
  it('is told of as far as it is read, can be ended and removed, and is not started', async () => {
    const { first, reopen } = await made('fixed')
    const instances = await reopen(DEFAULTS, (text) => text.replace('microvm/v1', 'microvm/v2'))
    const fault = 'apiVersion: microvm/v2: written by another version, want that one or a later one'
    const known = await instances.get('web', ADMIN)
    expect(known).toMatchObject({
      state: State.PAUSED,
      warnings: [`saved machine: ${fault}`],
      qemuPid: first.qemuPid,
      configurations: { saved: expect.stringContaining('microvm/v2'), memoryMib: 64n },
    })
    expect(Object.keys(known.devices)).toContain('disk0')
    expect(instances.list(ADMIN).map(({ state }) => state)).toEqual([State.PAUSED])
    const stopped = await change(instances, Change.KILL)
    expect([stopped.state, stopped.warnings]).toEqual([State.STOPPED, [`saved machine: ${fault}`]])
    await expect(change(instances, Change.RUN)).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
      message: `saved machine: ${fault}`,
    })
    expect((await instances.get('web', ADMIN)).configurations).toEqual(stopped.configurations)
  })
})
