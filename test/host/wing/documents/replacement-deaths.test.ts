import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it, vi } from 'vitest'
import { neverAborted } from '../../../../src/base/abort.ts'
import {
  EnsureInstanceRequest,
  ReplaceBackendRequest,
} from '../../../../src/gen/microvm/instance/v1/instance.ts'
import type { Instances } from '../../../../src/host/instance/instances.ts'
import { memoryRegistry } from '../../../../src/host/instance/registry/memory-registry.ts'
import { QmpClient } from '../../../../src/host/qemu/qmp/client.ts'
import { connectQmp } from '../../../../src/host/qemu/qmp/connect.ts'
import { instanceFolderName, specKey } from '../../../../src/host/spec/spec-key.ts'
import { temporaryFolder } from '../../../support/temporary-folder.ts'
import { leftovers } from '../../../support/wing/leftovers.ts'
import { image, openReal } from '../../../support/wing/real-wing.ts'
import { ADMIN } from '../../../support/wing/requests.ts'

const LIMITS = { slow: 100, fast: 1000 } as const
const key = 'web'
const document = '{ kind: VM, spec: { features: { memory: 64, storage: [{ source: slow }] } } }'

const whole = (volume: 'slow' | 'fast') => [...Array(5).fill(volume), LIMITS[volume]]

it('a daemon that dies at any command leaves the disk and the record with one volume', async () => {
  const folder = temporaryFolder()
  const catalogue = join(folder, 'catalogue.toml')
  const volumes = Object.entries(LIMITS).map(
    ([name, iops]) => `[volumes.${name}]\npath = "${image(folder, name, 8)}"\nlimits = { iops = ${iops} }\n`,
  )
  writeFileSync(catalogue, `roots = ["${folder}"]\n${volumes.join('')}`, { mode: 0o600 })
  const registry = memoryRegistry()
  /** Its process ends with the `death`: nothing is written from then on. */
  const open = (death?: AbortSignal) => {
    const mortal: typeof registry = {
      ...registry,
      load: (table) => registry.load(table),
      close: () => registry.close(),
      commit: (changes, options) =>
        death?.aborted ? new Promise(() => {}) : registry.commit(changes, options),
    }
    return openReal(folder, mortal, { catalogue })
  }
  const replace = (instances: Instances, source: string) =>
    instances.replaceBackend(
      ReplaceBackendRequest.fromPartial({ key, backendKey: 'disk0-backend', source }),
      ADMIN,
    )
  /** The names in the three machines, the files of QEMU's nodes, and the limit of the disk. */
  const found = async (instances: Instances) => {
    const { configurations } = await instances.get(key, ADMIN)
    const { current = '', desired = '', saved = '' } = configurations ?? {}
    const names = [saved, desired, current].map((text) => JSON.parse(text).backends['disk0-backend'].name)
    await instances.close()
    return [...names, ...(await blocksOf(folder))]
  }
  let instances = await open()
  await instances.ensure(EnsureInstanceRequest.fromPartial({ properties: { key }, document }), ADMIN)
  let present: keyof typeof LIMITS = 'slow'
  for (const [command, isDone] of [
    ['add-fd', false],
    ['blockdev-add', false],
    ['blockdev-reopen', false],
    ['blockdev-del', true],
    ['remove-fd', true],
    ['block_set_io_throttle', true],
  ] as const) {
    const next: keyof typeof LIMITS = present === 'slow' ? 'fast' : 'slow'
    await instances.close()
    const death = new AbortController()
    const dying = await open(death.signal)
    await Promise.all([dieAt(command, death), Promise.race([replace(dying, next), died(death.signal)])])
    await dying.close()
    expect(await found(await open()), command).toEqual(whole(isDone ? next : present))
    instances = await open()
    await replace(instances, next)
    present = next
  }
  expect(await found(instances)).toEqual(whole(present))
  instances = await open()
  await instances.remove(key, ADMIN)
  await instances.close()
  expect(leftovers(folder)).toEqual([])
})

/** Resolves once the command was about to be given, which never is. */
async function dieAt(deadly: string, death: AbortController): Promise<void> {
  const asked = Promise.withResolvers<void>()
  const spies = (['command', 'pass'] as const).map((name) => {
    const given: (this: QmpClient, ...words: never[]) => Promise<unknown> = QmpClient.prototype[name]
    return vi.spyOn(QmpClient.prototype, name).mockImplementation(function (
      this: QmpClient,
      ...words: unknown[]
    ) {
      if ((words[0] as { readonly execute: string }).execute !== deadly)
        return given.apply(this, words as never[]) as Promise<never>
      death.abort()
      asked.resolve()
      return new Promise<never>(() => {})
    })
  })
  await asked.promise
  for (const spy of spies) spy.mockRestore()
}

function died(death: AbortSignal): Promise<void> {
  return new Promise((resolve) => death.addEventListener('abort', () => resolve()))
}

async function blocksOf(folder: string): Promise<readonly unknown[]> {
  const qmp = await connectQmp(
    join(folder, 'instances', instanceFolderName(specKey(key)), 'qmp.sock'),
    neverAborted,
  )
  const [disk] = (await qmp.command({ execute: 'query-block', arguments: {} }, neverAborted)) as {
    readonly inserted: { readonly iops: number }
  }[]
  const nodes = await qmp.execute('query-named-block-nodes', { flat: true }, neverAborted)
  const sets = await qmp.execute('query-fdsets', {}, neverAborted)
  qmp.close()
  const files = nodes.map(({ file }) => {
    const set = sets.find((each) => file === `/dev/fdset/${each['fdset-id']}`)
    return set?.fds[0]?.opaque?.split('/').at(-1)
  })
  return [...files, disk?.inserted.iops]
}
