import { execFileSync } from 'node:child_process'
import { readdirSync, readFileSync } from 'node:fs'
import { mkdir, rm, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { inspect } from 'node:util'
import { afterEach, describe, expect, it } from 'vitest'
import { neverAborted } from '../../../../src/base/abort.ts'
import {
  ChangeStateRequest_Change as Change,
  EnsureInstanceRequest,
  DeviceStatus_Plug as Plug,
  PlugRequest,
  Stability,
  State,
} from '../../../../src/gen/microvm/instance/v1/instance.ts'
import { DocumentRecord } from '../../../../src/gen/microvm/instance/v1/records.ts'
import type { Instances } from '../../../../src/host/instance/instances.ts'
import { recordOf, recordRow } from '../../../../src/host/instance/record/instance-record.ts'
import type { Quotas } from '../../../../src/host/instance/record/quota.ts'
import { DEFAULT_QUOTA } from '../../../../src/host/instance/record/quota.ts'
import { memoryRegistry } from '../../../../src/host/instance/registry/memory-registry.ts'
import type { Registry, Change as Row } from '../../../../src/host/instance/registry/registry.ts'
import { readMachine } from '../../../../src/host/machine/document/document.ts'
import { parseYaml } from '../../../../src/host/machine/document/parse-yaml.ts'
import { withoutMachineDevices } from '../../../../src/host/machine/plugged.ts'
import { askedQemu } from '../../../../src/host/qemu/capabilities.ts'
import type { QmpClient } from '../../../../src/host/qemu/qmp/client.ts'
import { connectQmp } from '../../../../src/host/qemu/qmp/connect.ts'
import { openSecrets } from '../../../../src/host/secrets/secrets.ts'
import { nodeNames, specKey } from '../../../../src/host/spec/spec-key.ts'
import { microvm } from '../../../support/microvm/run-microvm.ts'
import { endChild } from '../../../support/processes.ts'
import { temporaryFolder } from '../../../support/temporary-folder.ts'
import { startDaemonProcess } from '../../../support/wing/daemon-process.ts'
import { leftovers } from '../../../support/wing/leftovers.ts'
import { ip } from '../../../support/wing/made-machine.ts'
import { image, openReal } from '../../../support/wing/real-wing.ts'
import { ADMIN, ensureRequest, file, tenant } from '../../../support/wing/requests.ts'
import { tinyGuest } from '../../../support/wing/tiny-guest.ts'

const undo: (() => unknown)[] = []

afterEach(async () => {
  for (const each of undo.splice(0).reverse()) await each()
})

const EXAMPLE = readFileSync(join(import.meta.dirname, '../../../fixtures/machines/kubevirt-vm.yaml'), 'utf8')

const PASSWORD = '5f0f3c4e-8a3c-4c59-9a54-0d8b0a0f2e11'

/** What the screen of the example names. */
const SCREEN = `
[secrets.display0]
id = "${PASSWORD}"
[networks.mgmnet]
bridge = "mgmtnet"
`

async function open(entries: string, quotas?: Quotas) {
  const folder = temporaryFolder()
  const catalogue = join(folder, 'catalogue.toml')
  await writeFile(catalogue, entries, { mode: 0o600 })
  const registry = memoryRegistry()
  const secrets = await openSecrets(join(folder, 'secrets'))
  const instances = await openReal(folder, registry, { catalogue, quotas, secrets })
  const opened = { folder, catalogue, registry, instances, secrets }
  undo.push(async () => {
    const { instances } = opened
    for (const { properties } of instances.list(ADMIN)) await instances.remove(properties?.key ?? '', ADMIN)
    await instances.close()
    expect(leftovers(folder)).toEqual([])
  })
  return opened
}

const request = (document: string, own = {}) =>
  EnsureInstanceRequest.fromPartial({ properties: { key: 'web', ...own }, document })
const qemuWords = (pid: number) => readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0')

describe('the example of the proposal', () => {
  it('is an instance of the administrator, with its own paths and bridge', async () => {
    const { instances, secrets } = await open(SCREEN)
    await secrets.set('', PASSWORD, Buffer.from('*****'))
    const disk = /file: (\/mntpoint\S+)/.exec(EXAMPLE)?.[1] ?? ''
    await mkdir(dirname(disk), { recursive: true })
    await writeFile(disk, Buffer.alloc(1 << 20))
    ip('link', 'add', 'mgmtnet', 'type', 'bridge')
    undo.push(
      () => rm('/mntpoint', { recursive: true }),
      () => ip('link', 'del', 'mgmtnet'),
    )
    const made = await instances.ensure(request(EXAMPLE), ADMIN)
    expect(made).toMatchObject({
      state: State.PAUSED,
      configurations: { memoryMib: 4096n, cpus: 4 },
      backends: { 'disk0-backend': { sizeBytes: 1n << 20n, locks: ['write'] } },
    })
    expect(made.warnings).toEqual([
      'pc-i440fx-rhel7.3.0: not a machine of this QEMU, which gives pc-i440fx-7.2',
      'not given here: PIT tick policy (no KVM)',
      'not given here: hyperv (no KVM)',
      expect.stringContaining('not given here: devices.channel0 at /var/lib/libvirt/qemu/channels/'),
      "not given here: devices.display0 at mgmnet (its socket is in the instance's folder)",
    ])
    const machine = readMachine(JSON.parse(made.configurations?.current ?? ''))
    expect(machine.devices.panic0).toMatchObject({ model: 'pvpanic' })
    const words = qemuWords(made.qemuPid)
    const cpu = words.find((word) => word.startsWith('base,')) ?? ''
    for (const own of [
      'family=6',
      'model=44',
      'stepping=1',
      'vendor=GenuineIntel',
      'aes=on',
      'phys-bits=40',
      'enforce',
    ])
      expect(cpu.split(',')).toContain(own)
    expect(machine.cpu).toMatchObject({ model: 'Westmere', expansion: { 'min-level': 11, 'phys-bits': 40 } })
    const port = /: (mv[0-9a-f]{12}): /.exec(ip('-o', 'link', 'show', 'master', 'mgmtnet'))?.[1]
    const rules = execFileSync('nft', ['list', 'ruleset', 'netdev'], { encoding: 'utf8' })
    expect(rules).toContain(`hook ingress device "${port}"`)
    expect(rules).toContain('ether saddr != 00:aa:bb:cc:dd:ee drop')
  })

  it("is refused as a tenant's", async () => {
    const { instances } = await open(SCREEN)
    await expect(instances.ensure(request(EXAMPLE), tenant('anne'))).rejects.toMatchObject({
      code: 'PERMISSION_DENIED',
      message: 'spec.domain: only for the administrator',
    })
    await expect(instances.expand({ document: EXAMPLE }, tenant('anne'))).rejects.toThrow('spec.domain')
    const { machine } = await instances.expand({ document: EXAMPLE }, ADMIN)
    expect(readMachine(JSON.parse(machine)).board.machine).toBe('pc-i440fx-7.2')
    expect(instances.list(ADMIN)).toEqual([])
  })
})

describe('a CPU model', () => {
  const document = (cpu: string) => request(`{kind: VM, spec: {features: {memory: 64, cpu: ${cpu}}}}`)

  it.each([
    ['{model: Westmore}', 'spec.features.cpu.model: "Westmore": unknown here, did you mean "Westmere"?'],
    ['{features: {aess: true}}', "QEMU: Property 'Westmere-x86_64-cpu.aess' not found"],
    // Emulation has it not.
    ['{features: {avx512f: true}}', 'cpu.features.avx512f: of model Westmere: not given here'],
  ])('%s is refused by name', async (cpu, message) => {
    const { instances } = await open('')
    await expect(instances.ensure(document(cpu), ADMIN)).rejects.toThrow(message)
    expect(instances.list(ADMIN)).toEqual([])
  })

  it('is asked of QEMU once', async () => {
    const qemu = askedQemu('qemu-system-x86_64', 'tcg')
    const { version } = await qemu.capabilities()
    expect(version).toMatch(/^7\.2\./)
    expect(await qemu.capabilities()).toBe(await qemu.capabilities())
    const [once] = await qemu.propertiesOf(['virtio-blk-pci'])
    expect(once).toContain('serial')
    expect((await qemu.propertiesOf(['isa-serial', 'virtio-blk-pci']))[1]).toBe(once)
  })
})

/** A machine of a tenant, on a volume of its own. */
const OWN = `
kind: VM
metadata: { name: web }
spec:
  features:
    memory: { size: 64, maximum: 64 }
    system: linux
    storage: [{ source: root-of-web, cache: none }]
    rng: true
    vsock: true
    graphics: { type: vnc }
    channel: [{ name: org.example.0 }]
    metadata: { name: web, v4: { ip: 10.0.0.2/24, peer: 10.0.0.1 } }
    firmware: uefi
`

async function openOwn(quotas?: Quotas) {
  const folder = temporaryFolder()
  const volume = (path: string) =>
    `roots = ["${folder}"]\n[volumes.root-of-web]\npath = "${path}"\ntenants = ["anne"]\n`
  const opened = await open(volume(image(folder, 'root', 8)), quotas)
  const move = (name: string) => writeFile(opened.catalogue, volume(image(folder, name, 8)))
  return Object.assign(opened, { move })
}

/** Opens the instances with another record, such as that of an earlier version. */
async function reopen(
  opened: Awaited<ReturnType<typeof open>>,
  change: (document: DocumentRecord) => Partial<DocumentRecord>,
) {
  const { folder, catalogue, registry } = opened
  await opened.instances.close()
  const record = recordOf((await registry.load('instances')).get('web') ?? Buffer.alloc(0))
  const document = record.document ?? DocumentRecord.create()
  await registry.commit([recordRow('web', { ...record, document: { ...document, ...change(document) } })])
  opened.instances = await openReal(folder, registry, { catalogue })
  return opened.instances
}

const ANNE = tenant('anne')
const anne = (instances: Instances, to: Change) =>
  instances.changeState({ key: 'web', change: to, graceMs: 100 }, ANNE)

describe('cards with several queues', () => {
  it('have taps with as many, from the start and plugged in', async () => {
    ip('link', 'add', 'wingqueues', 'type', 'bridge')
    undo.push(() => ip('link', 'del', 'wingqueues'))
    const { instances } = await open('[networks.lan]\nbridge = "wingqueues"\n')
    const features = '{memory: 64, network: [{source: lan, queues: 3}]}'
    await instances.ensure(request(`kind: VM\nmetadata: {name: web}\nspec: {features: ${features}}`), ADMIN)
    const more = { key: 'web', deviceKey: 'more', features: 'network: [{source: lan, queues: 2}]' }
    await instances.plug(PlugRequest.fromPartial(more), ADMIN)
    const taps = ip('-d', '-j', 'link', 'show', 'master', 'wingqueues')
    // QEMU takes all but the first away until the guest's driver wants them.
    const queues = JSON.parse(taps).map(
      ({ linkinfo }: TapLink) => linkinfo.info_data.numqueues + linkinfo.info_data.numdisabled,
    )
    expect(queues.sort()).toEqual([2, 3])
  })
})

interface TapLink {
  readonly linkinfo: { readonly info_data: { readonly numqueues: number; readonly numdisabled: number } }
}

describe('an instance that was made of a document', () => {
  it('is one instance for equal documents, and names the first difference of another', async () => {
    const { instances } = await openOwn()
    const made = await instances.ensure(request(OWN), ANNE)
    expect(made.warnings).toEqual(['not given here: PIT tick policy (no KVM)'])
    const json = JSON.stringify(parseYaml(OWN))
    expect((await instances.ensure(request(json), ANNE)).qemuPid).toBe(made.qemuPid)
    for (const [from, to, path] of [
      ['size: 64, maximum: 64', 'size: 64, maximum: 128', 'spec.features.memory.maximum'],
      ['cache: none', 'cache: unsafe', 'spec.features.storage[0].cache'],
      ['rng: true', 'balloon: true', 'spec.features.balloon'],
      ['name: web }\nspec', 'name: other }\nspec', 'metadata.name'],
    ] as const)
      await expect(instances.ensure(request(OWN.replace(from, to)), ANNE)).rejects.toMatchObject({
        code: 'FAILED_PRECONDITION',
        message: `instance web: ${path}: differs from the present one`,
      })
    await expect(instances.ensure(ensureRequest('web'), ADMIN)).rejects.toThrow('specification: differs')
  })

  it('has the same hardware at the next start, with another backend, which is forgotten at its end', async () => {
    const { instances, folder, move } = await openOwn()
    const made = await instances.ensure(request(OWN), ANNE)
    const { document = '', saved = '', desired, current } = made.configurations ?? {}
    expect([document, desired, current]).toEqual([OWN, saved, saved])
    const words = qemuWords(made.qemuPid)
    const stopped = await anne(instances, Change.KILL)
    expect(stopped.configurations).toMatchObject({ saved, desired: '', current: '' })
    await move('other')
    const again = await anne(instances, Change.RUN)
    expect(again.configurations).toEqual(made.configurations)
    const [before, after] = [words, qemuWords(again.qemuPid)].map((all) =>
      all.map((word) => word.replace(`${folder}/`, '')),
    )
    expect(after?.filter((word) => !before?.includes(word))).toEqual([expect.stringContaining('/other')])
    const listed = instances.list(ANNE)[0]?.configurations
    const texts = { document: '', saved: '', desired: '', current: '' }
    expect(listed).toEqual({ ...texts, memoryMib: 64n, cpus: 1, stability: Stability.FIXED })
  })

  it.each(['fixed', 'latest'])(
    'of stability %s has the machine of its first or of this day',
    async (stability) => {
      const opened = await openOwn()
      const { folder, catalogue, instances } = opened
      const given = OWN.replace('spec:', `spec:\n  stability: ${stability}`)
      const isLatest = stability === 'latest'
      const made = await instances.ensure(request(given), ANNE)
      const promise = 'not promised: stability latest expands anew at each cold boot'
      expect(made.warnings.includes(promise)).toBe(isLatest)
      expect(made.configurations?.stability).toBe(isLatest ? Stability.LATEST : Stability.FIXED)
      const more = `[volumes.more]\npath = "${image(folder, 'more', 8)}"\ntenants = ["anne"]\n`
      const entries = readFileSync(catalogue, 'utf8').replace('roots = [', `roots = ["${folder}", `)
      await writeFile(catalogue, `${entries}${more}`)
      const features = 'storage: [{source: more}]'
      await instances.plug(PlugRequest.fromPartial({ key: 'web', deviceKey: 'more', features }), ANNE)
      await anne(instances, Change.KILL)
      await instances.close()
      // It gave no generator of random numbers.
      const second = await reopen(opened, ({ saved }) => ({
        saved: JSON.stringify({
          ...withoutMachineDevices(readMachine(JSON.parse(saved)), ['rng0']),
          unplugged: undefined,
        }),
      }))
      const { configurations } = await anne(second, Change.RUN)
      const { devices } = readMachine(JSON.parse(configurations?.current ?? ''))
      expect([devices.more?.plugged, devices.rng0 !== undefined]).toEqual([true, isLatest])
      expect(configurations?.saved).toBe(configurations?.current)
      await anne(second, Change.KILL)
      const third = await reopen(opened, (document) => ({
        given: document.given.replace('rng: true', 'dice: true'),
      }))
      await expect(third.ensure(request(given), ANNE)).rejects.toMatchObject({
        code: 'FAILED_PRECONDITION',
        message: 'instance web: document (recorded by another version): differs from the present one',
      })
      const same = given.replace('rng: true', 'dice: true')
      expect((await third.ensure(request(same), ANNE)).state).toBe(State.STOPPED)
      const started = anne(third, Change.RUN)
      if (isLatest) await expect(started).rejects.toThrow('spec.features.dice: unknown field')
      else expect((await started).state).toBe(State.RUNNING)
      const after = await third.get('web', ANNE)
      expect([after.configurations?.saved, after.state]).toEqual([
        configurations?.saved,
        isLatest ? State.STOPPED : State.RUNNING,
      ])
    },
  )

  it('tells since when its guest keeps a device, for ever, which a cold boot ends', async () => {
    const opened = await openOwn()
    const { instances } = opened
    await instances.ensure(request(OWN), ANNE)
    // Its firmware finds nothing to boot, and answers no request to let a device go.
    await anne(instances, Change.RUN)
    const unplug = (of: Instances) => of.unplug({ key: 'web', deviceKey: 'disk0', graceMs: 50 }, ANNE)
    const { devices } = await unplug(instances)
    expect(devices.disk0).toEqual({ plug: Plug.LEAVING, leavingMs: expect.any(BigInt) })
    const again = await reopen(opened, () => ({}))
    expect((await unplug(again)).devices).toEqual(devices)
    const { configurations } = await again.get('web', ANNE)
    const { current = '', desired = '', saved = '' } = configurations ?? {}
    const has = (text: string) => 'disk0' in readMachine(JSON.parse(text)).devices
    expect([current, desired, saved].map(has)).toEqual([true, false, false])
    await anne(again, Change.KILL)
    const booted = await anne(again, Change.RUN)
    expect(booted.devices).not.toHaveProperty('disk0')
    expect(has(booted.configurations?.current ?? '')).toBe(false)
    expect(qemuWords(booted.qemuPid).join(' ')).not.toContain('virtio-blk')
  })

  it.each([
    [
      'a property that this QEMU lacks',
      ['"properties":{"serial"', '"properties":{"later":true,"serial"'],
      /^devices\.disk0\.properties\.later: not a property of virtio-blk-pci in this QEMU, 7\.2\./,
    ],
    [
      'a CPU that this host does not give',
      ['"aes":true', '"aes":true,"avx512f":true'],
      /^cpu\.features\.avx512f: of model Westmere: not given here/,
    ],
  ] as const)('is not started with %s', async (_, [from, to], message) => {
    const opened = await openOwn()
    await opened.instances.ensure(request(OWN), ANNE)
    await anne(opened.instances, Change.KILL)
    const instances = await reopen(opened, ({ saved }) => {
      expect(saved).toContain(from)
      return { saved: saved.replace(from, to) }
    })
    await expect(anne(instances, Change.RUN)).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
      message: expect.stringMatching(message),
    })
    expect(instances.list(ANNE)[0]?.state).toBe(State.STOPPED)
  })

  it('gets its volumes by the catalogue alone, and nothing of the host is told', async () => {
    const { instances, folder } = await openOwn()
    await expect(instances.ensure(request(OWN), tenant('bob'))).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
      message: expect.stringContaining(
        'spec.features.storage[0].source: volume "root-of-web": not in the catalogue',
      ),
    })
    expect(instances.list(ADMIN)).toEqual([])
    const made = await instances.ensure(request(OWN), ANNE)
    expect(inspect(made, { depth: 9 })).not.toContain(folder)
  })

  it('counts against the quota of its tenant', async () => {
    const quotas = new Map([['anne', { ...DEFAULT_QUOTA, instances: 4, memoryMib: 100, cpus: 4 }]])
    const { instances } = await openOwn(quotas)
    await instances.ensure(request(OWN), ANNE)
    const other = OWN.replaceAll('web', 'more').replace('root-of-more', 'root-of-web')
    await expect(instances.ensure(request(other, { key: 'more' }), ANNE)).rejects.toMatchObject({
      code: 'RESOURCE_EXHAUSTED',
      message: 'tenant anne: 128 MiB of memory in machines, want at most 100',
    })
  })

  it('takes a device by features alone, and refuses what it cannot take by its field', async () => {
    const { instances } = await openOwn()
    await instances.ensure(request(OWN), ANNE)
    const plug = (features: string) =>
      instances.plug(PlugRequest.fromPartial({ key: 'web', deviceKey: 'more', features }), ANNE)
    for (const [features, message] of [
      ['rng: true', 'features.rng: a running machine takes none'],
      ['storage: [{source: a}, {source: b}]', 'features.storage: 2 devices, want one'],
      ['storage: [{source: more}]', 'volume "more": not in the catalogue for tenant anne'],
      ['storage: [{source: a, interface: sata}]', 'interface: takes no disk while the machine runs'],
      ['storage: [{source: a, interface: virtio-scsi}]', 'wants scsi0, which this machine has not'],
      ['storage: [{source: a, name: other}]', 'features.storage[0].name: "other": want more, or none'],
    ] as const)
      await expect(plug(features)).rejects.toThrow(message)
    const device = { backend: 'x', slot: 0, port: 'spare0', disk: { serial: 'x' } }
    const asSpecification = PlugRequest.fromPartial({ key: 'web', deviceKey: 'x', device })
    await expect(instances.plug(asSpecification, ANNE)).rejects.toThrow('made of a document, want features')
    const replaced = { key: 'web', backendKey: 'disk0-backend', backend: file('/x') }
    await expect(instances.replaceBackend(replaced, ANNE)).rejects.toThrow('made of a document, want source')
  })
})

it.each(['fixed', 'latest'])(
  'a clock that was set while no daemon ran is kept, stability %s',
  async (stability) => {
    const opened = await openOwn()
    const { catalogue, folder, instances, registry } = opened
    const given = OWN.replace('spec:', `spec:\n  stability: ${stability}`)
    await instances.ensure(request(given), ANNE)
    await instances.close()
    const year = new Date().getUTCFullYear() + 4
    await withQmp(folder, async (qmp) => {
      // Its registers have decimal digits; 9 is the year.
      for (const [port, value] of [
        [0x70, 9],
        [0x71, Number.parseInt(String(year % 100), 16)],
      ]) {
        const line = { 'command-line': `o /b ${port} ${value}` }
        await qmp.command({ execute: 'human-monitor-command', arguments: line }, neverAborted)
      }
    })
    opened.instances = await openReal(folder, registry, { catalogue })
    const { configurations } = await opened.instances.get('web', ANNE)
    const clocks = [configurations?.saved, configurations?.desired, configurations?.current].map(
      (text = '') => readMachine(JSON.parse(text)).clock.adjustmentSeconds,
    )
    expect(new Set(clocks).size).toBe(1)
    expect(new Date(Date.now() + (clocks[0] ?? 0) * 1000).getUTCFullYear()).toBe(year)
    await anne(opened.instances, Change.KILL)
    const { qemuPid } = await anne(opened.instances, Change.RUN)
    expect(qemuWords(qemuPid)).toContainEqual(
      expect.stringMatching(new RegExp(`^base=${year}-.*,driftfix=slew`)),
    )
  },
)

it('a clock is kept that a guest of an older version sets as it powers off', async () => {
  const opened = await open('')
  const { folder } = opened
  const images = `roots = ["${folder}"]\n[images.own]\npath = "${tinyGuest(folder, 'lastClock')}"\n`
  await writeFile(opened.catalogue, images, { mode: 0o600 })
  const aheadS = 3600
  const features = `memory: 64, system: {type: linux, clock: {adjustment: ${aheadS}}}, firmware: {kernel: own}`
  await opened.instances.ensure(request(`{kind: VM, spec: {features: {${features}}}}`), ADMIN)
  const instances = await reopen(opened, () => ({ clockStart: undefined }))
  await instances.changeState({ key: 'web', change: Change.RUN, graceMs: 0 }, ADMIN)
  const adjustment = async () => {
    const { saved = '' } = (await instances.get('web', ADMIN)).configurations ?? {}
    return readMachine(JSON.parse(saved)).clock.adjustmentSeconds
  }
  await expect.poll(adjustment, { timeout: 20_000 }).not.toBe(aheadS)
  const time = new Date(Date.now() + aheadS * 1000)
  time.setUTCFullYear(2034)
  expect(Math.abs((await adjustment()) - (time.getTime() - Date.now()) / 1000)).toBeLessThan(5)
})

async function withQmp<T>(folder: string, work: (qmp: QmpClient) => Promise<T>): Promise<T> {
  const [own = ''] = readdirSync(join(folder, 'instances'))
  const qmp = await connectQmp(join(folder, 'instances', own, 'qmp.sock'), neverAborted)
  return await work(qmp).finally(() => qmp.close())
}

describe('an unplug of a device of a document', () => {
  it('of a bus that keeps its devices leaves the record as it was', async () => {
    const { instances, registry } = await openOwn()
    const made = await instances.ensure(request(OWN), ANNE)
    const record = async () => recordOf((await registry.load('instances')).get('web') ?? Buffer.alloc(0))
    const before = await record()
    await expect(instances.unplug({ key: 'web', deviceKey: 'rng0', graceMs: 1 }, ANNE)).rejects.toMatchObject(
      {
        code: 'FAILED_PRECONDITION',
        message: expect.stringContaining(
          "device rng0: device_del: Bus 'pcie.0' does not support hotplugging",
        ),
      },
    )
    expect(await record()).toEqual({ ...before, sequence: expect.anything() })
    expect((await instances.get('web', ANNE)).configurations).toEqual(made.configurations)
  })

  it.each(['with', 'without'])(
    'is kept over the death of the daemon in the plug of another one, %s its device',
    async (what) => {
      const opened = await openOwn()
      const { catalogue, folder, instances, registry } = opened
      const more = ['more', 'other'].map(
        (name) => `[volumes.${name}]\npath = "${image(folder, name, 8)}"\ntenants = ["anne"]\n`,
      )
      const entries = readFileSync(catalogue, 'utf8').replace('roots = [', `roots = ["${folder}", `)
      await writeFile(catalogue, `${entries}${more.join('')}`)
      await instances.ensure(request(OWN), ANNE)
      const plug = (name: string) =>
        instances.plug(
          PlugRequest.fromPartial({ key: 'web', deviceKey: name, features: `storage: [{source: ${name}}]` }),
          ANNE,
        )
      await plug('more')
      await instances.unplug({ key: 'web', deviceKey: 'more', graceMs: 1 }, ANNE)
      const begun = await recordsAtPlug(registry, 'web/plug/other', what === 'with')
      await plug('other').catch(() => {})
      await instances.close()
      await registry.commit(begun())
      const node = nodeNames(specKey('other-backend')).file
      const added = { execute: 'blockdev-add', arguments: { driver: 'null-co', 'node-name': node } }
      if (what === 'without') await withQmp(folder, (qmp) => qmp.command(added, neverAborted))
      opened.instances = await openReal(folder, registry, { catalogue })
      const { configurations } = await opened.instances.get('web', ANNE)
      await opened.instances.close()
      const nodes = await withQmp(folder, (qmp) =>
        qmp.execute('query-named-block-nodes', { flat: true }, neverAborted),
      )
      opened.instances = await openReal(folder, registry, { catalogue })
      const { current = '', desired = '' } = configurations ?? {}
      const present = [current, desired].map((text) => {
        const { devices } = readMachine(JSON.parse(text))
        return ['more', 'other'].filter((key) => devices[key] !== undefined)
      })
      expect(present).toEqual(what === 'with' ? [['more', 'other'], ['other']] : [['more'], []])
      expect(nodes.some((each) => each['node-name'] === node)).toBe(what === 'with')
    },
  )
})

/** The rows of the registry as they are once the step with this key is in it; `goesOn`: what follows is done too. */
async function recordsAtPlug(registry: Registry, key: string, goesOn: boolean) {
  const tables = ['instances', 'steps'] as const
  const commit = registry.commit.bind(registry)
  let rows: readonly Row[] = []
  registry.commit = async (changes) => {
    await commit(changes)
    if (!changes.some((change) => change.key === key && change.payload !== undefined)) return
    const loaded = tables.map(async (table) =>
      [...(await registry.load(table))].map(([each, payload]) => ({ table, key: each, payload })),
    )
    rows = (await Promise.all(loaded)).flat()
    registry.commit = commit
    if (!goesOn) throw new Error('the daemon is dead')
  }
  return () => rows
}

describe('./microvm', () => {
  it('makes an instance of a document, which outlives a daemon that is killed', async () => {
    const state = join(temporaryFolder(), 'state')
    const run = (...words: readonly string[]) => microvm([...words, '--socket', join(state, 'admin.sock')])
    const first = await startDaemonProcess(state)
    const path = join(dirname(state), 'vm.yaml')
    await writeFile(path, 'kind: VM\nmetadata: {name: web}\nspec: {features: {memory: 64, rng: true}}\n')
    expect(await run('ensure', path)).toMatchObject({ status: 0, stdout: 'web: paused\n' })
    const saved = await run('inspect', 'web', '--saved')
    expect((await run('inspect', 'web', '--current')).stdout).toBe(saved.stdout)
    const before = JSON.parse((await run('inspect', 'web', '--json')).stdout)
    const summary = (await run('inspect', 'web')).stdout
    expect(summary).toMatch(
      /^web\nstate +paused\nage .*\nmachine +pc-q35-7\.2, 1 CPU of Westmere, 64\.0 MiB\n/,
    )
    expect(summary).toMatch(
      /^stability +fixed\nprocesses +QEMU \d+, holder \d+\nwarning +not given here: PIT/m,
    )
    expect(summary).toMatch(/^rng0 +virtio-rng +00:04\.0 +random/m)
    expect(summary).toMatch(
      /\nWith --saved, --desired or --current: the whole machine\. With --json: all\.\n$/,
    )
    first.kill('SIGKILL')
    await endChild(first)
    const second = await startDaemonProcess(state)
    try {
      const after = JSON.parse((await run('inspect', 'web', '--json')).stdout)
      expect(after).toEqual({ ...before, sequence: after.sequence })
      expect(await run('ensure', path)).toMatchObject({ status: 0, stdout: 'web: paused\n' })
      expect((await run('kill', 'web')).stdout).toBe('web: stopped\n')
      expect((await run('inspect', 'web', '--current')).stderr).toContain(
        'has no machine that runs, want --saved',
      )
      expect((await run('start', 'web')).stdout).toBe('web: running\n')
      expect(await run('inspect', 'web', '--current')).toEqual(saved)
      expect((await run('ps')).stdout).toMatch(/web +running .* 1 +64\.0 MiB/)
    } finally {
      await run('rm', 'web')
      await endChild(second)
    }
  })
})
