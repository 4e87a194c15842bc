import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { silentLogger } from '../../../../src/base/log.ts'
import { ChangeStateRequest_Change as Change } from '../../../../src/gen/microvm/instance/v1/instance.ts'
import { type Daemon, startDaemon } from '../../../../src/host/service/daemon.ts'
import { daemonClient } from '../../../support/host-wing/running-daemon.ts'
import { temporaryFolder } from '../../../support/temporary-folder.ts'
import { leftovers } from '../../../support/wing/leftovers.ts'
import { image } from '../../../support/wing/real-wing.ts'

const folder = temporaryFolder()
const state = join(folder, 's')
const files = join(folder, 'files')
const catalogue = join(folder, 'catalogue.toml')
let daemon: Daemon
let admin: ReturnType<typeof daemonClient>
let anne: ReturnType<typeof daemonClient>

function grant(owners: Readonly<Record<string, string>>, network = 'anne'): void {
  const volumes = Object.entries(owners).map(
    ([name, owner]) =>
      `[volumes.${name}]\npath = "${join(files, name)}"\n${owner && `tenants = ["${owner}"]\n`}`,
  )
  const lan = `[networks.lan]\ninterface = "mvtn0"\ntenants = ["${network}"]\n`
  writeFileSync(catalogue, `roots = ["${files}"]\n${volumes.join('')}${lan}`, { mode: 0o600 })
}

beforeAll(async () => {
  mkdirSync(files)
  for (const name of ['root', 'data', 'ledger', 'hers']) image(files, name, 8)
  grant({ root: 'anne', data: 'anne', ledger: 'bob' })
  const tenants = ['anne', 'bob'].map((name, index) => ({ name, uid: 1000 + index, folders: [] }))
  const configuration = { tenants, catalogue }
  daemon = await startDaemon({
    ...{ stateFolder: state, configuration, acceleration: 'tcg', mock: false, log: silentLogger() },
  })
  admin = daemonClient(daemon.socket)
  anne = daemonClient(join(state, 'tenants', 'anne.sock'))
})

afterAll(async () => {
  await admin.instances.remove({ key: 'web' }).catch(() => {})
  for (const client of [admin, anne]) client.close()
  await daemon.close()
  expect(leftovers(state)).toEqual([])
})

const key = 'web'
const ensure = (spec: unknown) =>
  admin.instances.ensureInstance({
    properties: { key, tenant: 'anne' },
    document: JSON.stringify({ kind: 'VM', metadata: { name: key }, spec }),
  })
const plug = ({ instances }: typeof anne, source: string) =>
  instances.plug({ key, deviceKey: source, features: `storage: [{ source: ${source} }]` })
const change = (to: Change) => anne.instances.changeState({ key, change: to })
const missing = (name: string, what = 'volume') => ({
  code: 'FAILED_PRECONDITION',
  message: expect.stringContaining(`${what} "${name}": not in the catalogue for tenant anne`),
})

it("looks the names of a tenant's machine up as the tenant's, also when the administrator has made it", async () => {
  const machine = (source: string) => ({
    features: { memory: 64, storage: [{ source }], network: [{ source: 'lan' }] },
  })
  await expect(ensure(machine('ledger'))).rejects.toMatchObject(missing('ledger'))
  await ensure(machine('root'))
  for (const client of [anne, admin])
    await expect(plug(client, 'ledger')).rejects.toMatchObject(missing('ledger'))
  await plug(anne, 'data')
  await change(Change.KILL)
  await anne.instances.snapshot({ key, name: 'one' })
  grant({ root: 'anne', data: 'bob', ledger: 'bob' })
  await expect(anne.instances.revert({ key, name: 'one' })).rejects.toMatchObject(missing('data'))
  await expect(change(Change.RUN)).rejects.toMatchObject(missing('data'))
  grant({ root: 'bob', data: 'anne', ledger: 'bob' })
  await expect(anne.instances.revert({ key, name: 'one' })).rejects.toMatchObject(missing('root'))
  grant({ root: 'anne', data: 'anne', ledger: 'bob' }, 'bob')
  await expect(anne.instances.revert({ key, name: 'one' })).rejects.toMatchObject(missing('lan', 'network'))
  grant({ root: 'anne', data: 'anne', ledger: 'bob' })
  await anne.instances.revert({ key, name: 'one' })
  await anne.instances.remove({ key })
})

it("keeps the administrator's paths to what the administrator gave", async () => {
  const disk = { type: 'file', source: { file: join(files, 'hers') }, target: { bus: 'virtio' } }
  const { qemuPid } = await ensure({ features: { memory: 64 }, domain: { devices: { disks: [disk] } } })
  await expect(plug(anne, 'ledger')).rejects.toMatchObject(missing('ledger'))
  await plug(anne, 'data')
  await change(Change.KILL)
  expect((await change(Change.RUN)).qemuPid).not.toBe(qemuPid)
})
