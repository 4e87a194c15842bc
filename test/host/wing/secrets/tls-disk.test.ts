import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { inspect } from 'node:util'
import { afterAll, afterEach, beforeAll, expect, it } from 'vitest'
import { jsonLogger } from '../../../../src/base/log.ts'
import { ChangeStateRequest_Change as Change } from '../../../../src/gen/microvm/instance/v1/instance.ts'
import { type Daemon, startDaemon } from '../../../../src/host/service/daemon.ts'
import { instanceFolderName, specKey } from '../../../../src/host/spec/spec-key.ts'
import { daemonClient } from '../../../support/host-wing/running-daemon.ts'
import { temporaryFolder } from '../../../support/temporary-folder.ts'
import { BOOTED, bootDisk } from '../../../support/wing/boot-disk.ts'
import { leftovers } from '../../../support/wing/leftovers.ts'
import { type Authority, diskByNbd, expiredNbd, makeAuthority } from './nbd-server.ts'
import { commandLines, filesWith } from './search.ts'

const UUID = '6b3f0c62-3d1e-4f0a-9a55-0f4f8f0c2d11'
const OTHER = '6b3f0c62-3d1e-4f0a-9a55-0f4f8f0c2d12'
const key = 'web'
const folder = temporaryFolder()
const state = join(folder, 's')
const own = join(state, 'instances', instanceFolderName(specKey(key)))
const files = temporaryFolder()
const disk = join(files, 'disk.raw')
const told: string[] = []
const servers: { close(): Promise<void> }[] = []
let credentials: string
let daemon: Daemon
let client: ReturnType<typeof daemonClient>

beforeAll(async () => {
  const [known, stranger, old] = ['known', 'stranger', 'old'].map(makeAuthority) as [
    Authority,
    Authority,
    Authority,
  ]
  const names = ['subjectAltName=IP:127.0.0.1,DNS:disks.example', 'extendedKeyUsage=serverAuth']
  known.sign('server', names)
  known.sign('client', ['extendedKeyUsage=clientAuth'])
  old.sign('server', names, -1)
  credentials = ['client.pem', 'client.key'].map((name) => readFileSync(join(known.folder, name))).join('\n')
  writeFileSync(disk, bootDisk(2 ** 20))
  const [server, expired] = [await diskByNbd(disk, known), await expiredNbd(old)]
  servers.push(server, expired)
  const volume = (name: string, ca: string, more = '', { port } = server) =>
    `[volumes.${name}]\nurl = "nbds://127.0.0.1:${port}/disk"\nca = "${ca}"\nread_only = ${name !== 'unit'}\n${more}`
  const mine = 'secret = "of-web"\n'
  const volumes = [
    volume('unit', known.ca, mine),
    volume('named', known.ca, `${mine}tls_name = "disks.example"\n`),
    volume('misnamed', known.ca, `${mine}tls_name = "other.example"\n`),
    volume('nobody', known.ca),
    volume('garbled', known.ca, 'secret = "garbled"\n'),
    volume('strange', stranger.ca, mine),
    volume('expired', old.ca, '', expired),
  ]
  const roots = [known, stranger, old].map((each) => `"${each.folder}"`)
  const secrets = `[secrets.of-web]\nid = "${UUID}"\n[secrets.garbled]\nid = "${OTHER}"\n`
  const catalogue = join(folder, 'catalogue.toml')
  writeFileSync(catalogue, `roots = [${roots}]\n${secrets}${volumes.join('')}`, { mode: 0o644 })
  daemon = await startDaemon({
    ...{ stateFolder: state, configuration: { tenants: [], catalogue }, acceleration: 'tcg', mock: false },
    log: jsonLogger({ level: () => 'debug', version: '', pid: 0, sink: (line) => told.push(line) }),
  })
  client = daemonClient(daemon.socket)
  await client.secrets.setSecret({ uuid: UUID, value: Buffer.from(credentials) })
  await client.secrets.setSecret({ uuid: OTHER, value: Buffer.from('garbled by someone') })
})

afterEach(async () => {
  await client.instances.remove({ key }).catch(() => {})
})

afterAll(async () => {
  for (const server of servers) await server.close()
  client.close()
  await daemon.close()
  expect(leftovers(state)).toEqual([])
})

const ensure = (storage: string) =>
  client.instances.ensureInstance({
    properties: { key },
    document: `{ kind: VM, metadata: { name: ${key} }, spec: { features: { memory: 64, storage: [${storage}] } } }`,
  })

/** Lines of the client's key, which nobody but the server is to see. */
const keyLines = () =>
  credentials
    .slice(credentials.indexOf('PRIVATE KEY-----'))
    .split('\n')
    .filter((line) => line.length > 30 && !line.includes('-----'))

function expectNoKey() {
  const [first = ''] = keyLines()
  expect(first).not.toBe('')
  const all = [...told, ...commandLines(folder)].join('\n')
  for (const line of keyLines()) expect(all).not.toContain(line)
  expect(filesWith(state, first)).toEqual([join(state, 'secrets/admin', UUID)])
}

it('boots a machine in TLS, with a certificate of its own that is nowhere else', async () => {
  told.push(inspect(await ensure('{ source: unit, bootOrder: 1 }'), { depth: 9 }))
  await client.instances.changeState({ key, change: Change.RUN })
  const ring = join(own, 'console.ring')
  await expect.poll(() => readFileSync(ring).includes(BOOTED), { timeout: 60_000 }).toBe(true)
  expect(commandLines(state, '"driver":"nbd"')).toHaveLength(1)
  expectNoKey()
  await client.instances.changeState({ key, change: Change.KILL })
  expect(commandLines(state, '"driver":"nbd"')).toEqual([])
  expect(readdirSync(own).filter((name) => name.startsWith('nbd-') && name.endsWith('.tls'))).toEqual([])
})

it('is plugged in by another name of the server, and leaves nothing when it is unplugged', async () => {
  await ensure('')
  const features = 'storage: [{ source: named, readonly: true }]'
  const { backends } = await client.instances.plug({ key, deviceKey: 'data', features })
  expect(backends['data-backend']).toMatchObject({ sizeBytes: 2n ** 20n, locks: [] })
  expectNoKey()
  await client.instances.unplug({ key, deviceKey: 'data', graceMs: 1 })
  await client.instances.changeState({ key, change: Change.RUN })
  await client.instances.changeState({ key, change: Change.RESET })
  await expect.poll(() => readdirSync(own).filter((name) => name.endsWith('.tls'))).toEqual([])
  expect(commandLines(state, '"driver":"nbd"')).toEqual([])
})

it.each([
  ['misnamed', 'Certificate does not match the hostname other.example'],
  ['strange', "The certificate hasn't got a known issuer"],
  ['expired', 'expired'],
  ['nobody', 'TLS'],
  ['garbled', 'Unable to import client certificate'],
])('is refused as %s, with the reason', async (source, reason) => {
  const refused = await ensure(`{ source: ${source}, readonly: true }`).catch((error) => error)
  expect(refused).toMatchObject({
    code: 'FAILED_PRECONDITION',
    message: expect.stringMatching(/^backends\.disk0-backend: /),
  })
  expect(refused.message).toContain(reason)
  expect(refused.message).not.toMatch(/garbled by|BEGIN/)
  expect(commandLines(state, '"driver":"nbd"')).toEqual([])
  expectNoKey()
})
