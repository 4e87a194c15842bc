import { appendFileSync, existsSync, readdirSync, readFileSync, utimesSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { afterEach, describe, expect, it } from 'vitest'
import { messageOf } from '../../../../src/base/errors.ts'
import { silentLogger } from '../../../../src/base/log.ts'
import {
  ChangeStateRequest_Change as Change,
  CloneInstanceRequest,
  EnsureInstanceRequest,
  File_Access,
  type Instance,
  Specification,
  State,
  SuspendInstanceRequest,
  type Template,
} from '../../../../src/gen/microvm/instance/v1/instance.ts'
import { openTemplates, type Templates } from '../../../../src/host/migration/templates.ts'
import { CountingMachines } from '../../../support/wing/counting-machine.ts'
import { leftovers } from '../../../support/wing/leftovers.ts'
import { image } from '../../../support/wing/real-wing.ts'
import { ADMIN } from '../../../support/wing/requests.ts'
import { tinyGuest } from '../../../support/wing/tiny-guest.ts'

let host = new CountingMachines()
let opened: Templates | undefined
let qemu = 'QEMU 7.2.0'

interface Options {
  readonly limit?: number
  readonly answers?: (key: string, signal: AbortSignal) => Promise<void>
}

/** The templates of a daemon, whose guests have no agent and are ready once they count. */
async function templates({
  limit = 8,
  answers = (key) => host.counted(key, 1),
}: Options = {}): Promise<Templates> {
  opened ??= openTemplates({
    ...{ instances: await host.open(), stateFolder: host.folder, limit, answers, log: silentLogger() },
    host: async () => ({ qemu, acceleration: 'tcg', cpu: '' }),
  })
  return opened
}

/** As a daemon that dies. */
async function leave(): Promise<void> {
  opened?.close()
  opened = undefined
  await host.leave()
}

function machine(memoryMib = 64): Specification {
  const disk = join(host.disks, 'root')
  if (!existsSync(disk)) image(host.disks, 'root', 1)
  const kernel = join(host.disks, 'count.kernel')
  if (!existsSync(kernel)) tinyGuest(host.disks, 'count')
  return Specification.fromPartial({
    board: {
      ...{ machine: 'pc-q35-7.2', memoryMib: BigInt(memoryMib), cpus: 1 },
      kernel,
    },
    devices: {
      root: { backend: 'root-file', slot: 3, disk: { serial: 'root' } },
      port: { slot: 5, rootPort: {} },
      console: { backend: 'output', serial: {} },
    },
    backends: {
      'root-file': { file: { path: disk, access: File_Access.READ_ONLY } },
      output: { console: {} },
    },
  })
}

/** Waits until the template is ready, or has failed. */
async function settled(name: string): Promise<Template | undefined> {
  const late = AbortSignal.timeout(60_000)
  for (;;) {
    const found = (await (await templates()).list()).find((each) => each.name === name)
    if (found === undefined || found.step === '') return found
    await delay(10, undefined, { signal: late })
  }
}

async function made(specification = machine(), options: Options = {}): Promise<Template> {
  const { name } = await (await templates(options)).ensure(specification)
  const template = await settled(name)
  expect(template).toMatchObject({ name, step: '', failure: '' })
  return template as Template
}

async function clone(name: string, key: string): Promise<Instance> {
  const instances = await host.open()
  const request = EnsureInstanceRequest.fromPartial({ properties: { key }, saved: { name } })
  return await (await templates()).clone(name, () => instances.ensure(request, ADMIN))
}

const names = async () => (await (await templates()).list()).map(({ name }) => name)
const keys = async () => (await host.open()).list(ADMIN).map(({ properties }) => properties?.key)
const savedNames = async () => (await (await host.open()).listSaved(ADMIN)).map(({ name }) => name)
const records = () => readdirSync(join(host.folder, 'templates')).filter((name) => name.endsWith('.json'))
const ofInstances = () => leftovers(host.folder).filter((each) => !each.includes('/keepers/'))

afterEach(async () => {
  host.atStep = async () => {}
  qemu = 'QEMU 7.2.0'
  await leave()
  await host.end()
  const all = await templates()
  for (const { name } of await all.list()) await all.remove(name)
  await leave()
  expect(leftovers(host.folder)).toEqual([])
  const keepers = join(host.folder, 'keepers')
  expect(existsSync(keepers) ? readdirSync(keepers) : []).toEqual([])
  host = new CountingMachines()
})

describe('templates', () => {
  it('are made once for all who ask, and are known to the next daemon', async () => {
    const all = await templates()
    const [first, second] = await Promise.all([all.ensure(machine()), all.ensure(machine())])
    expect(second.name).toBe(first.name)
    expect(first).toMatchObject({ step: 'boot', clones: 0 })
    const { name } = await made()
    expect(await savedNames()).toEqual([name])
    expect(await keys()).toEqual([])
    const clones = [await clone(name, 'a'), await clone(name, 'b')]
    expect(clones).toMatchObject([{ state: State.RUNNING, madeOf: name }, { state: State.RUNNING }])
    for (const key of ['a', 'b']) await host.counted(key, 10)
    expect(readFileSync(`/proc/${host.pidsOf('qemu', 'a')[0]}/cmdline`, 'utf8')).toContain('share=off')
    await leave()
    expect(await (await templates()).ensure(machine())).toMatchObject({ name, step: '', clones: 2 })
    // A clone that boots anew is an ordinary machine.
    const instances = await host.open()
    await instances.changeState({ key: 'a', change: Change.KILL, graceMs: 0 }, ADMIN)
    await host.again('a')
  })

  it('keep the address of their card in clones, each on a tap of its own, but not in clones of those', async () => {
    const { name } = await made()
    const clones = [await clone(name, 'a'), await clone(name, 'b')]
    const instances = await host.open()
    await instances.suspend(
      SuspendInstanceRequest.fromPartial({ key: 'a', name: 'saved', withoutAgent: true }),
      ADMIN,
    )
    const ofClone = { saved: 'saved', name: 'c', count: 1, withoutAgent: true }
    const others = await instances.clone(CloneInstanceRequest.fromPartial(ofClone), ADMIN, async () => {})
    const own = [...clones, ...others].map(({ specification }) => {
      const { backend = '', nic } = specification?.devices['template-card'] ?? {}
      return { mac: nic?.mac, tap: specification?.backends[backend]?.tap?.interfaceName }
    })
    const [first, second, third] = own.map(({ mac }) => mac)
    expect(first).toBeDefined()
    expect([second, third === first]).toEqual([first, false])
    expect(new Set(own.map(({ tap }) => tap)).size).toBe(3)
  })

  it('are replaced when a file or QEMU is another one, and their clones go on', async () => {
    const { name } = await made()
    await clone(name, 'a')
    const other = await made(machine(32))
    const disk = join(host.disks, 'root')
    let before = name
    for (const change of [
      () => appendFileSync(disk, Buffer.alloc(512, 1)),
      () => utimesSync(disk, new Date(), new Date()),
      () => {
        qemu = 'QEMU 7.2.1'
      },
    ]) {
      expect(await names()).toEqual([before, other.name].sort())
      change()
      before = (await made()).name
    }
    expect(await names()).toEqual([before, other.name].sort())
    expect([...(await savedNames())].sort()).toEqual(await names())
    await host.counted('a', 10)
    await expect(clone(name, 'b')).rejects.toMatchObject({ code: 'NOT_FOUND' })
  })

  it('make room for others, those first that were used longest ago', async () => {
    const first = await made(machine(32), { limit: 2 })
    const second = await made(machine(48))
    await clone(first.name, 'a')
    const third = await made(machine(64))
    expect(await names()).toEqual([first.name, third.name].sort())
    expect(await names()).not.toContain(second.name)
  })

  it('can be removed, but not while one is made or a clone of it is', async () => {
    const all = await templates()
    const { name } = await all.ensure(machine())
    await expect(all.remove(name)).rejects.toMatchObject({ code: 'FAILED_PRECONDITION' })
    await expect(clone(name, 'a')).rejects.toMatchObject({
      message: expect.stringMatching(
        new RegExp(`^template ${name}: being made: step (boot|agent|save), want it ready$`),
      ),
    })
    await settled(name)
    let refusal: unknown
    host.atStep = async (operation, step) => {
      if (operation === 'import' && step === 'devices') refusal = await all.remove(name).catch(messageOf)
    }
    await clone(name, 'a')
    expect(refusal).toBe(`template ${name}: a clone of it is being made, want it once that runs`)
    await all.remove(name)
    await host.counted('a', 10)
    expect([await names(), await savedNames(), records()]).toEqual([[], [], []])
    await expect(all.remove(name)).rejects.toMatchObject({ code: 'NOT_FOUND' })
  })

  it('that cannot be made are told with their step, and leave nothing', async () => {
    const answers = async () => {
      throw new Error('asked for')
    }
    const { name } = await (await templates({ answers })).ensure(machine())
    expect(await settled(name)).toMatchObject({ failure: 'step agent: asked for', step: '' })
    expect([await keys(), await savedNames(), records(), ofInstances()]).toEqual([[], [], [], []])
    await leave()
    await made()
  })

  it.each(['agent', 'save', 'end'])('leave nothing when the daemon dies in step %s', async (step) => {
    const reached = Promise.withResolvers<void>()
    const hang = async () => {
      reached.resolve()
      await new Promise<never>(() => {})
    }
    host.atStep = async (operation, at) => {
      if (operation === 'export' && at === { save: 'devices', end: 'end', agent: '' }[step]) await hang()
    }
    const { name } = await (await templates(step === 'agent' ? { answers: hang } : {})).ensure(machine())
    await reached.promise
    await leave()
    host.atStep = async () => {}
    // What was saved whole is a template.
    expect(await names()).toEqual(step === 'end' ? [name] : [])
    expect([await keys(), ofInstances()]).toEqual([[], []])
    expect(await savedNames()).toEqual(await names())
    expect((await made()).name).toBe(name)
  })

  it('are of disks that are only read, and of no name that the daemon gives', async () => {
    const all = await templates()
    const { backends, devices, ...others } = machine()
    const refused = async (change: Parameters<typeof Specification.fromPartial>[0], message: string) => {
      const specification = Specification.fromPartial({
        ...others,
        devices: { ...devices, ...change.devices },
        backends: { ...backends, ...change.backends },
      })
      await expect(all.ensure(specification)).rejects.toMatchObject({ code: 'INVALID_ARGUMENT', message })
    }
    const file = { path: join(host.disks, 'root'), access: File_Access.READ_WRITE }
    await refused(
      { backends: { 'root-file': { file } } },
      'specification.backends.root-file.file.access: clones of a template share the disk, want READ_ONLY',
    )
    await refused(
      { devices: { v: { backend: 'link', slot: 7, vsock: {} } }, backends: { link: { vsockDaemon: {} } } },
      'specification.backends.link: clones of a template cannot have it, want a file or a console',
    )
    await refused(
      { backends: { 'template-tap': { console: {} } } },
      "specification.backends.template-tap: the name is the daemon's",
    )
    expect(await all.list()).toEqual([])
  })
})
