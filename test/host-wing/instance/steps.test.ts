import { cpSync, existsSync, mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { abortable, neverAborted } from '../../../src/base/abort.ts'
import { AgentError } from '../../../src/base/errors.ts'
import { silentLogger } from '../../../src/base/log.ts'
import { InstanceRecord } from '../../../src/gen/microvm/instance/v1/records.ts'
import { INSTANCE_LIMITS } from '../../../src/host/instance/limits.ts'
import { cgroupName } from '../../../src/host/instance/machine/limits-of.ts'
import {
  type Holders,
  makeSteps,
  type StepContext,
  undoSteps,
} from '../../../src/host/instance/machine/steps.ts'
import { startTimer } from '../../../src/os/clock.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import { FakeHolders } from '../../support/wing/fakes/fake-holders.ts'

function contextOf(folder: string, holders: Holders): StepContext {
  return {
    folder,
    holders,
    isWalled: false,
    holder: undefined,
    machine: undefined,
    onEvent: () => {},
    ending: () => AbortSignal.timeout(1000),
    links: { exists: () => false, isRoutable: () => true, connect: async () => {} },
    filters: { check: async () => {}, apply: async () => {}, run: async () => {} },
    limits: INSTANCE_LIMITS,
    clock: {
      sleep: (_ms, signal) => abortable(new Promise(() => {}), signal ?? neverAborted),
      startTimer: () => () => {},
      monotonicMs: () => 0,
    },
    log: silentLogger(),
  }
}

it.each(['is killed', 'cannot be killed'])('undoSteps of a holder that hangs and %s', async (kind) => {
  const folder = join(temporaryFolder(), 'n-1')
  mkdirSync(folder)
  const killed: string[] = []
  const holders = {
    start: async () => expect.unreachable(),
    find: async () => Promise.reject(new AgentError('UNAVAILABLE', 'no answer')),
    kill: async (path: string) => {
      if (kind !== 'is killed') throw new AgentError('UNAVAILABLE', 'still there')
      killed.push(path)
    },
  }
  const steps = ['folder', 'holder'].map((step, number) => ({
    instance: 'a',
    number,
    step,
    words: ['', folder],
  }))
  const undone = (await undoSteps(contextOf(folder, holders), steps)).map(({ step }) => step)
  const isKilled = kind === 'is killed'
  expect([undone, killed, existsSync(folder)]).toEqual(
    isKilled ? [['holder', 'folder'], [folder], false] : [[], [], true],
  )
})

it('makeSteps kills a holder that is late, which may come when it has not been found', async () => {
  const folder = temporaryFolder()
  const killed: string[] = []
  const holders = {
    start: () => new Promise<never>(() => {}),
    find: async () => undefined,
    kill: async (path: string) => void killed.push(path),
  }
  const own = contextOf(folder, holders)
  const context = { ...own, clock: { ...own.clock, startTimer }, limits: { ...own.limits, holderMs: 10 } }
  const made = makeSteps(context, [{ step: 'holder', words: ['', folder] }], InstanceRecord.create())
  await expect(made).rejects.toThrow('the holder did not answer within 10 ms')
  expect(killed).toEqual([folder])
})

it('undoSteps of a copied state folder leaves the files of the original', async () => {
  const state = temporaryFolder()
  const [original, copy] = ['original', 'copy'].map((name) => join(state, name, 'instances', 'n-1'))
  if (original === undefined || copy === undefined) throw new Error('no folders')
  const files = ['qmp.sock', 'vsock.sock', 'streams/65536.ring']
  mkdirSync(join(original, 'streams'), { recursive: true })
  for (const file of files) writeFileSync(join(original, file), '')
  cpSync(original, copy, { recursive: true })
  const words = [
    ['cgroup', '', cgroupName(original)],
    ['qemu', '', join(original, 'qmp.sock')],
    ['daemon', 'link', 'vsock', join(original, 'vsock.sock')],
    ['stream', '65536', join(original, 'vsock.sock_65536'), join(original, 'streams/65536.ring')],
  ]
  const steps = words.map(([step = '', ...rest], index) => ({
    instance: 'a',
    number: index,
    step,
    words: rest,
  }))
  const removed: string[] = []
  const cgroups = {
    controllers: new Set<never>(),
    make: async () => {},
    foldersOf: async () => [],
    remove: async (name: string) => void removed.push(name),
  }
  expect(await undoSteps({ ...contextOf(copy, new FakeHolders()), cgroups }, steps)).toHaveLength(4)
  expect(removed).toEqual([])
  expect(files.map((file) => existsSync(join(original, file)))).toEqual([true, true, true])
  expect(files.map((file) => existsSync(join(copy, file)))).toEqual([false, false, false])
})

it('undoSteps leaves a folder that processes have made in the place of their socket to the removal', async () => {
  const folder = join(temporaryFolder(), 'instances', 'n-1')
  const socket = join(folder, 'run', 'vsock.sock')
  mkdirSync(socket, { recursive: true })
  const step = { instance: 'a', number: 0, step: 'daemon', words: ['link', 'vsock', socket] }
  const own = { instance: 'a', number: 1, step: 'folder', words: ['', folder] }
  const context = contextOf(folder, new FakeHolders())
  expect(await undoSteps(context, [step])).toEqual([step])
  expect(existsSync(socket)).toBe(true)
  expect(await undoSteps(context, [own])).toEqual([own])
  expect(existsSync(folder)).toBe(false)
})
