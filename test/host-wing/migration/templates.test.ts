import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { afterEach, beforeEach, expect, it, vi } from 'vitest'
import { AgentError, messageOf } from '../../../src/base/errors.ts'
import { silentLogger } from '../../../src/base/log.ts'
import {
  Instance,
  SavedMachine,
  Specification,
  type Template,
} from '../../../src/gen/microvm/instance/v1/instance.ts'
import type { Instances } from '../../../src/host/instance/instances.ts'
import { openTemplates, type Templates } from '../../../src/host/migration/templates.ts'

/** Instances in memory, whose saved machines cannot be removed by two at once. */
class FakeInstances {
  readonly saved = new Map<string, SavedMachine>()
  readonly present = new Map<string, Instance>()
  /** Saved machines that cannot be removed. */
  readonly stuck = new Set<string>()
  readonly #held = new Set<string>()
  /** Whether machines do not start until their instances are removed. */
  hangs = false
  #end: (error: Error) => void = () => {}

  readonly instances = {
    listSaved: async () => [...this.saved.values()],
    list: () => [...this.present.values()],
    ensure: async ({ properties }) => {
      const { key = '' } = properties ?? {}
      if (this.present.has(key)) throw new AgentError('FAILED_PRECONDITION', `instance ${key}: differs`)
      const instance = Instance.fromPartial({ properties })
      this.present.set(key, instance)
      return instance
    },
    changeState: async () => {
      if (!this.hangs) return Instance.create()
      return await new Promise<never>((_resolve, reject) => {
        this.#end = reject
      })
    },
    suspend: async ({ key, name }) => {
      await delay(1)
      this.present.delete(key)
      const machine = SavedMachine.fromPartial({ name, key, folder: `/saved/${name}`, sizeBytes: 1n })
      this.saved.set(name, machine)
      return machine
    },
    remove: async (key) => {
      if (!this.present.delete(key)) throw new AgentError('NOT_FOUND', key)
      this.#end(new Error('removed'))
    },
    deleteSaved: async (name) => {
      await delay(1)
      if (!this.saved.has(name)) throw new AgentError('NOT_FOUND', name)
      if (this.#held.has(name) || this.stuck.has(name))
        throw new AgentError('ALREADY_EXISTS', `${name}: being saved or removed`)
      this.#held.add(name)
      await delay(1)
      this.saved.delete(name)
      this.#held.delete(name)
    },
  } satisfies Partial<Instances> as unknown as Instances
}

let folder: string
let host: FakeInstances
let templates: Templates

function open(): Templates {
  return openTemplates({
    ...{ instances: host.instances, stateFolder: folder, limit: 2, log: silentLogger() },
    host: async () => ({ qemu: 'QEMU 7.2.0', acceleration: 'tcg', cpu: '' }),
    answers: async () => {},
  })
}

function machine(memoryMib: number): Specification {
  const board = {
    machine: 'pc-q35-7.2',
    memoryMib: BigInt(memoryMib),
    cpus: 1,
    kernel: join(folder, 'kernel'),
  }
  return Specification.fromPartial({ board })
}

async function settled(name: string): Promise<Template> {
  for (;;) {
    const found = (await templates.list()).find((each) => each.name === name)
    if (found?.step === '') return found
    await delay(1)
  }
}

async function made(memoryMib: number): Promise<Template> {
  return await settled((await templates.ensure(machine(memoryMib))).name)
}

const names = async () => (await templates.list()).map(({ name }) => name)

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'templates-'))
  writeFileSync(join(folder, 'kernel'), 'kernel')
  host = new FakeInstances()
  templates = open()
})

afterEach(() => rmSync(folder, { recursive: true }))

it('leaves an instance alone that has the name of a template, and is not its own', async () => {
  const { name } = await made(32)
  await templates.remove(name)
  const own = Instance.fromPartial({ properties: { key: name } })
  host.present.set(name, own)
  expect(await made(32)).toMatchObject({ failure: `step boot: instance ${name}: differs` })
  expect(host.present.get(name)).toBe(own)
  templates = open()
  await templates.list()
  expect(host.present.get(name)).toBe(own)
})

it('makes room for two at once, and for no more than there may be', async () => {
  const before = [await made(32), await made(48)].map(({ name }) => name)
  const asked = await Promise.all([templates.ensure(machine(64)), templates.ensure(machine(80))])
  for (const { name } of asked) expect(await settled(name)).toMatchObject({ failure: '' })
  expect(await names()).toEqual(asked.map(({ name }) => name).sort())
  expect([...host.saved.keys()].filter((name) => before.includes(name))).toEqual([])
  const three = [96, 112, 128].map((size) => templates.ensure(machine(size)).catch(messageOf))
  const outcomes = await Promise.all(three)
  const refused = 'templates: 2, all of which are being made or cloned'
  expect(outcomes.filter((each) => each === refused)).toHaveLength(1)
})

it('keeps a new template although the one that it replaces cannot be removed', async () => {
  const old = await made(32)
  host.stuck.add(old.name)
  writeFileSync(join(folder, 'kernel'), 'another')
  expect(await made(32)).toMatchObject({ failure: '' })
  expect(host.saved.size).toBe(2)
})

it('gives up a template with a damaged file, and none for another failure of a clone', async () => {
  const { name } = await made(32)
  const cloneFails = async (message: string) => {
    const fail = async () => {
      throw new AgentError('FAILED_PRECONDITION', message)
    }
    await expect(templates.clone(name, fail)).rejects.toMatchObject({ message })
  }
  await cloneFails('instance a: saved: differs from the present one')
  expect(await names()).toEqual([name])
  await cloneFails(`/saved/${name}/memory: damaged: its digest is another one`)
  expect([await names(), host.saved.size]).toEqual([[], 0])
  expect(await made(32)).toMatchObject({ name, failure: '' })
})

it('makes a template anew that was resumed', async () => {
  const { name } = await made(32)
  host.saved.set(name, SavedMachine.fromPartial({ ...host.saved.get(name), resumedAs: 'a' }))
  expect(await names()).toEqual([])
  expect((await templates.ensure(machine(32))).step).toBe('boot')
})

it('removes at its start what has a record alone, and nothing when the records cannot be read', async () => {
  const { name } = await made(32)
  const other = 'template-0123456789ab'
  host.saved.set(other, SavedMachine.fromPartial({ name: other }))
  writeFileSync(join(folder, 'templates', `${name}.json`), 'no record')
  templates = open()
  expect(await names()).toEqual([])
  expect([...host.saved.keys()]).toEqual([other])
  rmSync(join(folder, 'templates'), { recursive: true })
  writeFileSync(join(folder, 'templates'), '')
  templates = open()
  await expect(templates.list()).rejects.toThrow(`${join(folder, 'templates')}: `)
  rmSync(join(folder, 'templates'))
  mkdirSync(join(folder, 'templates'))
})

it('gives up a machine that hangs', async () => {
  host.hangs = true
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
  try {
    const { name } = await templates.ensure(machine(32))
    while (!host.present.has(name)) await new Promise((resolve) => setImmediate(resolve))
    vi.advanceTimersByTime(300_000)
    vi.useRealTimers()
    expect(await settled(name)).toMatchObject({ failure: 'step boot: not made within 300 s' })
    expect(host.present.size).toBe(0)
  } finally {
    vi.useRealTimers()
  }
})
