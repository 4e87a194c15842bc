import { execFileSync } from 'node:child_process'
import { mkdirSync, readdirSync, readFileSync, readlinkSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { afterAll, afterEach, beforeAll, expect, it } from 'vitest'
import { neverAborted } from '../../../../src/base/abort.ts'
import { silentLogger } from '../../../../src/base/log.ts'
import {
  ChangeStateRequest_Change as Change,
  type Instance,
  SnapshotRequest,
} from '../../../../src/gen/microvm/instance/v1/instance.ts'
import { connectQmp } from '../../../../src/host/qemu/qmp/connect.ts'
import { type Daemon, startDaemon } from '../../../../src/host/service/daemon.ts'
import { instanceFolderName, specKey } from '../../../../src/host/spec/spec-key.ts'
import { daemonClient } from '../../../support/host-wing/running-daemon.ts'
import { microvm } from '../../../support/microvm/run-microvm.ts'
import { temporaryFolder } from '../../../support/temporary-folder.ts'
import { leftovers } from '../../../support/wing/leftovers.ts'
import { ip } from '../../../support/wing/made-machine.ts'
import { image, lifePlan } from '../../../support/wing/real-wing.ts'
import { luksImage } from '../secrets/luks-image.ts'

const UUID = '6b3f0c62-3d1e-4f0a-9a55-0f4f8f0c2d11'
const BRIDGES = ['mvrn0', 'mvrn1'] as const
const folder = temporaryFolder()
const state = join(folder, 's')
const files = join(folder, 'files')
const catalogue = join(folder, 'catalogue.toml')
const key = 'web'
let daemon: Daemon
let admin: ReturnType<typeof daemonClient>
let anne: ReturnType<typeof daemonClient>

/** Of anne, but those that `others` names, which are of bob. */
function grant(...others: readonly string[]): void {
  const owner = (name: string) => `tenants = ["${others.includes(name) ? 'bob' : 'anne'}"]\n`
  const volume = (name: string, more = '') =>
    `[volumes.${name}]\npath = "${join(files, name)}"\n${more}${owner(name)}`
  const network = (name: string, what: string) => `[networks.${name}]\n${what}\n${owner(name)}`
  const entries = [
    ...['root', 'data', 'small', 'ledger', 'gone'].map((name) => volume(name)),
    volume('fast', 'limits = { iops = 1000 }\n'),
    volume('image', 'format = "qcow2"\n'),
    volume('install', 'read_only = true\n'),
    volume('safe', 'secret = "of-safe"\n'),
    `[volumes.server]\nurl = "iscsi://storage.example/iqn.2026-11.example:disk/1"\n${owner('server')}`,
    `[secrets.of-safe]\nid = "${UUID}"\n${owner('safe')}`,
    network('lan', 'bridge = "mvrn0"'),
    network('dmz', 'bridge = "mvrn1"'),
    network('far', 'passt = true'),
  ]
  writeFileSync(catalogue, `roots = ["${files}"]\n${entries.join('')}`, { mode: 0o600 })
}

async function open() {
  const tenants = ['anne', 'bob'].map((name, index) => ({ name, uid: 1000 + index, folders: [] }))
  daemon = await startDaemon({
    ...{ stateFolder: state, configuration: { tenants, catalogue }, acceleration: 'tcg' },
    ...{ mock: false, log: silentLogger() },
  })
  admin = daemonClient(daemon.socket)
  anne = daemonClient(join(state, 'tenants', 'anne.sock'))
}

async function close() {
  for (const client of [admin, anne]) client.close()
  await daemon.close()
}

beforeAll(async () => {
  mkdirSync(files)
  for (const name of ['root', 'data', 'fast', 'install', 'ledger']) image(files, name, 8)
  image(files, 'small', 4)
  execFileSync('qemu-img', ['create', '-q', '-f', 'qcow2', join(files, 'image'), '8M'])
  luksImage(join(files, 'safe'), 8, 'a secret')
  for (const name of BRIDGES) ip('link', 'add', name, 'type', 'bridge')
  grant('ledger')
  await open()
  await admin.secrets.setSecret({ uuid: UUID, value: Buffer.from('a secret') })
})

afterEach(async () => {
  grant('ledger')
  await admin.instances.remove({ key }).catch(() => {})
})

afterAll(async () => {
  await close()
  for (const name of BRIDGES) ip('link', 'del', name)
  expect(leftovers(state)).toEqual([])
})

const ensure = (features: object, more = {}) =>
  anne.instances.ensureInstance({
    properties: { key },
    document: JSON.stringify({ kind: 'VM', metadata: { name: key }, spec: { features, ...more } }),
  })
const FEATURES = {
  memory: 64,
  storage: [
    { source: 'root', cache: 'none' },
    { source: 'data', name: 'data' },
  ],
  network: [{ source: 'lan', filter: 'no-mac-spoofing' }],
}
const replace = (backendKey: string, source: string, { instances } = anne) =>
  instances.replaceBackend({ key, backendKey, source })
const change = (to: Change) => anne.instances.changeState({ key, change: to })

/** The name behind a device in the saved, the desired and the current machine; undefined where there is none. */
function namesOf({ configurations }: Instance, backend = 'disk0-backend'): readonly unknown[] {
  const { current = '', desired = '', saved = '' } = configurations ?? {}
  return [saved, desired, current].map((text) => text && JSON.parse(text).backends[backend].name)
}

/** What the machine has but for what stands behind it. */
function hardwareOf({ configurations }: Instance): unknown {
  const { backends: _, ...hardware } = JSON.parse(configurations?.saved ?? '')
  return hardware
}

/** The files of this test that QEMU has open, which closes those of removed nodes while its guest runs. */
function filesOf({ qemuPid }: Instance): readonly string[] {
  const open = readdirSync(`/proc/${qemuPid}/fd`).map((fd) => readlinkSync(`/proc/${qemuPid}/fd/${fd}`))
  return [
    ...new Set(open.flatMap((path) => (path.startsWith(files) ? [path.slice(files.length + 1)] : []))),
  ].sort()
}

async function disksOf(): Promise<readonly string[]> {
  await close()
  const own = join(state, 'instances', instanceFolderName(specKey(key)), 'qmp.sock')
  const qmp = await connectQmp(own, neverAborted)
  const blocks = (await qmp.command({ execute: 'query-block', arguments: {} }, neverAborted)) as {
    readonly qdev: string
    readonly inserted: { readonly iops: number; readonly cache: { readonly direct: boolean } }
  }[]
  const nodes = await qmp.execute('query-named-block-nodes', { flat: true }, neverAborted)
  qmp.close()
  await open()
  const disks = blocks.map(
    ({ inserted, qdev }) => `${qdev.split('/')[3]} ${inserted.iops} ${inserted.cache.direct}`,
  )
  return [...disks.sort(), `${nodes.length} nodes`]
}

const portsOf = (bridge: string) => JSON.parse(ip('-j', 'link', 'show', 'master', bridge)).length

it('gives a disk another volume while its guest goes on with the same hardware, for later boots too', async () => {
  const made = await ensure(FEATURES)
  await change(Change.RUN)
  const socket = ['--socket', join(state, 'tenants', 'anne.sock')]
  const words = ['replace', key, 'disk0-backend', '--source', 'fast', ...socket]
  expect(await microvm(words)).toMatchObject({ status: 0, stdout: 'web: running\n' })
  const replaced = await anne.instances.getInstance({ key })
  expect(namesOf(replaced)).toEqual(['fast', 'fast', 'fast'])
  expect([replaced.qemuPid, hardwareOf(replaced)]).toEqual([made.qemuPid, hardwareOf(made)])
  expect(filesOf(replaced)).toEqual(['data', 'fast'])
  expect(await disksOf()).toEqual(['name-data 0 false', 'name-disk0 1000 true', '4 nodes'])
  expect(namesOf(await replace('disk0-backend', 'root'))).toEqual(['root', 'root', 'root'])
  expect(await disksOf()).toEqual(['name-data 0 false', 'name-disk0 0 true', '4 nodes'])
  await replace('disk0-backend', 'fast', admin)
  await change(Change.KILL)
  const again = await change(Change.RUN)
  expect([namesOf(again), filesOf(again)]).toEqual([
    ['fast', 'fast', 'fast'],
    ['data', 'fast'],
  ])
  expect(hardwareOf(again)).toEqual(hardwareOf(made))
})

it('replaces nothing by the present name, and the file that the name leads to by now', async () => {
  await ensure(FEATURES)
  const { sequence } = await change(Change.RUN)
  expect((await replace('disk0-backend', 'root')).sequence).toBe(sequence)
  writeFileSync(catalogue, readFileSync(catalogue, 'utf8').replace(join(files, 'root'), join(files, 'fast')))
  // Two names must not have one file.
  writeFileSync(catalogue, readFileSync(catalogue, 'utf8').replace('[volumes.fast]', '[volumes.other]'))
  const moved = await replace('disk0-backend', 'root')
  expect([namesOf(moved), filesOf(moved)]).toEqual([
    ['root', 'root', 'root'],
    ['data', 'fast'],
  ])
})

it('gives a card the bridge of another network, with its filter', async () => {
  const made = await ensure(FEATURES)
  expect(BRIDGES.map(portsOf)).toEqual([1, 0])
  const moved = await replace('nic0-backend', 'dmz')
  expect(namesOf(moved, 'nic0-backend')).toEqual(['dmz', 'dmz', 'dmz'])
  expect(hardwareOf(moved)).toEqual(hardwareOf(made))
  expect(BRIDGES.map(portsOf)).toEqual([0, 1])
  const { tap = '' } = { tap: moved.runValues['nic0-backend'] }
  expect(execFileSync('nft', ['list', 'ruleset', 'netdev'], { encoding: 'utf8' })).toContain(
    `device "${tap}"`,
  )
  await change(Change.KILL)
  await change(Change.RUN)
  expect(BRIDGES.map(portsOf)).toEqual([0, 1])
})

it('refuses by its field what cannot take its place, and stays as it was', async () => {
  await ensure({ ...FEATURES, rng: true })
  const made = await change(Change.RUN)
  for (const [backend, source, message] of [
    [
      'disk0-backend',
      'ledger',
      'backends.disk0-backend.source: volume "ledger": not in the catalogue for tenant anne',
    ],
    ['disk0-backend', 'data', '"data": already that of backends.disk0-backend.source'],
    [
      'disk0-backend',
      join(files, 'fast'),
      `source: "${join(files, 'fast')}", want a name of 1 to 63 letters`,
    ],
    ['disk0-backend', 'install', 'backends.disk0-backend.readonly: "install" is read-only, want true'],
    ['disk0-backend', 'small', `has ${4 << 20} bytes, want at least ${8 << 20}`],
    [
      'disk0-backend',
      'image',
      'a qcow2 volume can be replaced, or replace another, only while the machine is stopped',
    ],
    ['disk0-backend', 'server', 'a disk of a server can be replaced, or replace another, only while'],
    [
      'disk0-backend',
      'safe',
      'the file of an encrypted disk can be replaced only while the machine is stopped',
    ],
    ['nic0-backend', 'far', 'backends.nic0-backend.filter: '],
    ['nic0-backend', 'root', 'network "root": not in the catalogue for tenant anne'],
    ['rng0-backend', 'root', 'source: no '],
    ['disk7-backend', 'root', 'backend disk7-backend: not found'],
  ] as const)
    for (const client of [anne, admin])
      await expect(replace(backend, source, client)).rejects.toThrow(message)
  const file = { key, backendKey: 'disk0-backend', backend: { file: { path: join(files, 'fast') } } }
  await expect(anne.instances.replaceBackend(file)).rejects.toMatchObject({ code: 'PERMISSION_DENIED' })
  await expect(admin.instances.replaceBackend(file)).rejects.toThrow('made of a document, want source')
  await expect(admin.instances.replaceBackend({ ...file, source: 'fast' })).rejects.toThrow('want one')
  const after = await anne.instances.getInstance({ key })
  expect([after.configurations, filesOf(after)]).toEqual([made.configurations, ['data', 'root']])
  expect(await disksOf()).toContain('4 nodes')
  await change(Change.KILL)
  expect(namesOf(await replace('disk0-backend', 'image'))).toEqual(['image', '', ''])
  expect(filesOf(await change(Change.RUN))).toEqual(['data', 'image'])
})

it('tells its tenant of no path of the host, in answers and events', async () => {
  await ensure(FEATURES)
  await change(Change.RUN)
  const plug = ({ instances }: typeof anne) =>
    instances.plug({ key, deviceKey: 'more', features: 'storage: [{ source: gone }]' })
  for (const call of [(to: typeof anne) => replace('disk0-backend', 'small', to), plug]) {
    const [hidden, whole] = await Promise.all([anne, admin].map((to) => call(to).then(String, String)))
    expect(hidden).toMatch(/a file of the host/)
    expect(hidden).not.toContain(files)
    expect(whole).toContain(files)
  }
  // No folder can be made in it.
  const store = join(state, 'saved', 'anne')
  mkdirSync(dirname(store), { recursive: true })
  writeFileSync(store, '')
  const one = { key, name: 'one', withoutAgent: true }
  for (const request of [
    () => anne.instances.suspendInstance(one),
    () => anne.instances.cloneInstance({ ...one, count: 1 }),
  ]) {
    const failure = await request().then(String, String)
    expect(failure).toContain('ENOTDIR')
    expect(failure).not.toContain(state)
  }
  rmSync(store)
  const seen = await microvm(['events', '--socket', join(state, 'tenants', 'anne.sock')])
  const texts = seen.stdout
    .split('\n')
    .filter((line) => / (?:stays|was not plugged in|was not saved|is not kept): /.test(line))
  expect(texts.filter((text) => text.includes('a file of the host'))).toHaveLength(2)
  expect(texts.join()).not.toContain(folder)
  const resumed = { properties: { key: 'other' }, saved: { name: 'nothing' } }
  await expect(anne.instances.ensureInstance(resumed)).rejects.toMatchObject({
    message: 'nothing: no saved machine',
  })
})

it('refuses passt behind a card at a bridge while it runs', async () => {
  await ensure({ memory: 64, network: [{ source: 'lan' }] })
  await expect(replace('nic0-backend', 'far')).rejects.toMatchObject({
    code: 'UNIMPLEMENTED',
    message: expect.stringContaining('want a bridge in place of a bridge, or the machine stopped'),
  })
})

it('has the name of a snapshot after a revert, for which its tenant must have it', async () => {
  await ensure(FEATURES)
  await anne.instances.snapshot(SnapshotRequest.fromPartial({ key, name: 'one', disks: ['data'] }))
  await expect(replace('data-backend', 'fast')).rejects.toThrow('snapshots are on it')
  await replace('disk0-backend', 'fast')
  await change(Change.KILL)
  grant('root', 'ledger')
  await expect(anne.instances.revert({ key, name: 'one' })).rejects.toMatchObject({
    code: 'FAILED_PRECONDITION',
    message: expect.stringContaining('volume "root": not in the catalogue for tenant anne'),
  })
  expect(filesOf(await change(Change.RUN))).toEqual(['data', 'fast'])
  await change(Change.KILL)
  grant('ledger')
  expect(namesOf(await anne.instances.revert({ key, name: 'one' }))).toEqual(['root', '', ''])
})

it('stays replaced when the document is expanded anew', async () => {
  await ensure(FEATURES, { stability: 'latest' })
  await replace('disk0-backend', 'fast')
  await change(Change.KILL)
  expect(namesOf(await change(Change.RUN))).toEqual(['fast', 'fast', 'fast'])
})

it('is of documents alone', async () => {
  await admin.instances.ensureInstance(lifePlan(join(folder, 'disks')).request)
  await expect(replace('output', 'fast', admin)).rejects.toThrow('made of a specification, want backend')
})
