import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { silentLogger } from '../../../../src/base/log.ts'
import { ChangeStateRequest_Change as Change } from '../../../../src/gen/microvm/instance/v1/instance.ts'
import { type Daemon, startDaemon } from '../../../../src/host/service/daemon.ts'
import { daemonClient } from '../../../support/host-wing/running-daemon.ts'
import { temporaryFolder } from '../../../support/temporary-folder.ts'
import { leftovers } from '../../../support/wing/leftovers.ts'
import { luksImage } from './luks-image.ts'
import { filesWith } from './search.ts'

const UUID = '6b3f0c62-3d1e-4f0a-9a55-0f4f8f0c2d11'
const VALUE = 'a secret of the administrator'

const folder = temporaryFolder()
const state = join(folder, 's')
const files = join(folder, 'files')
let daemon: Daemon
let client: ReturnType<typeof daemonClient>

beforeAll(async () => {
  mkdirSync(files)
  const disk = luksImage(join(files, 'safe.luks'), 1, VALUE)
  const catalogue = join(folder, 'catalogue.toml')
  const text = `roots = ["${files}"]
[secrets.of-safe]
id = "${UUID}"
tenants = ["anne"]
[volumes.safe]
path = "${disk}"
secret = "of-safe"
tenants = ["anne"]
`
  writeFileSync(catalogue, text, { mode: 0o644 })
  const configuration = { tenants: [{ name: 'anne', uid: 1000, folders: [] }], catalogue }
  daemon = await startDaemon({
    stateFolder: state,
    configuration,
    acceleration: 'tcg',
    mock: false,
    log: silentLogger(),
  })
  client = daemonClient(daemon.socket)
})

afterAll(async () => {
  client.close()
  await daemon.close()
  expect(leftovers(state)).toEqual([])
})

it("opens a tenant's encrypted volume by the administrator's secret, once that is set", async () => {
  const document =
    '{ kind: VM, metadata: { name: web }, spec: { features: { memory: 64, storage: [{ source: safe }] } } }'
  const ensure = () =>
    client.instances.ensureInstance({ properties: { key: 'web', tenant: 'anne' }, document })
  await expect(ensure()).rejects.toMatchObject({
    code: 'FAILED_PRECONDITION',
    message: expect.stringContaining(`spec.features.storage[0].source: secret ${UUID}: not found`),
  })
  await client.secrets.setSecret({ uuid: UUID, value: Buffer.from('another') })
  await expect(ensure()).rejects.toMatchObject({
    code: 'FAILED_PRECONDITION',
    message: expect.stringContaining(
      `.file.encryption.secret: ${UUID} does not open ${join(files, 'safe.luks')}`,
    ),
  })
  await client.secrets.setSecret({ uuid: UUID, value: Buffer.from(VALUE) })
  const { backends, qemuPid } = await ensure()
  expect(Object.values(backends).map(({ sizeBytes }) => sizeBytes)).toContain(2n ** 20n)
  expect(readFileSync(`/proc/${qemuPid}/cmdline`, 'latin1')).not.toContain(VALUE)
  await client.instances.remove({ key: 'web' })
})

it('plugs such a volume into a machine, which opens it at its next start too', async () => {
  const document = '{ kind: VM, metadata: { name: web }, spec: { features: { memory: 64 } } }'
  await client.instances.ensureInstance({ properties: { key: 'web', tenant: 'anne' }, document })
  const plug = () =>
    client.instances.plug({ key: 'web', deviceKey: 'data', features: 'storage: [{ source: safe }]' })
  await client.secrets.removeSecret({ uuid: UUID })
  await expect(plug()).rejects.toMatchObject({
    code: 'FAILED_PRECONDITION',
    message: `backends.data-backend.file.encryption.secret: secret ${UUID}: not found, want it set before (./microvm secret)`,
  })
  await client.secrets.setSecret({ uuid: UUID, value: Buffer.from('another') })
  await expect(plug()).rejects.toMatchObject({
    code: 'FAILED_PRECONDITION',
    message: `backends.data-backend.file.encryption.secret: ${UUID} does not open ${join(files, 'safe.luks')}`,
  })
  await client.secrets.setSecret({ uuid: UUID, value: Buffer.from(VALUE) })
  const opened = { 'data-backend': expect.objectContaining({ sizeBytes: 2n ** 20n, locks: ['write'] }) }
  expect((await plug()).backends).toMatchObject(opened)
  for (const change of [Change.KILL, Change.RUN])
    await client.instances.changeState({ key: 'web', change, graceMs: 0 })
  expect((await client.instances.getInstance({ key: 'web' })).backends).toMatchObject(opened)
  await client.instances.remove({ key: 'web' })
  expect(filesWith(state, VALUE)).toEqual([join(state, 'secrets/admin', UUID)])
})
