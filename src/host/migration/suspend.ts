import { randomUUID } from 'node:crypto'
import { mkdir } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { AgentError, messageOf } from '../../base/errors.ts'
import {
  type Backend,
  type Device,
  File_Access,
  type SavedMachine,
  State,
  type SuspendInstanceRequest,
} from '../../gen/microvm/instance/v1/instance.ts'
import type { StepRecord } from '../../gen/microvm/instance/v1/records.ts'
import { attachStreams, quiesce, thaw } from '../instance/ask-agent.ts'
import { hasAgentWay } from '../instance/connect-agent.ts'
import { specificationOf } from '../instance/devices/plug.ts'
import { settleReplugs, unplugForAWhile } from '../instance/devices/replug.ts'
import { answer } from '../instance/holder/ask-holder.ts'
import type { Ring } from '../instance/holder/holder.ts'
import type { MachineInstance } from '../instance/instance.ts'
import type { Caller } from '../instance/instances.ts'
import { VARIABLES } from '../instance/machine/instance-files.ts'
import { QEMU } from '../instance/machine/machine.ts'
import { layerPath } from '../instance/snapshots/layers.ts'
import { fileError } from '../instance/snapshots/overlay-file.ts'
import { closedPorts, listenAgain } from '../instance/streams.ts'
import { pathOf } from '../spec/component-path.ts'
import type { AtStep } from './faults.ts'
import { detach } from './guest.ts'
import { cancelSaving, checkSavable, type MemoryForm, saveDevices } from './machine-state.ts'
import { copySparse, type FileFacts, factsOf, memoryOf } from './memory-file.ts'
import type { GuestFacts } from './payloads/ask-guest.ts'
import {
  bring,
  checkFree,
  describeSaved,
  FILES,
  type HostFacts,
  type Manifest,
  outsideFacts,
  publish,
  readManifest,
  removeWork,
  workOf,
} from './saved-folder.ts'
import { writeState } from './state-file.ts'

/** The work of one suspend. */
interface Suspend {
  readonly instance: MachineInstance
  readonly request: SuspendInstanceRequest
  readonly folder: string
  /** Where it is made, before it gets its name. */
  readonly work: string
  readonly id: string
  readonly host: HostFacts
  readonly wasRunning: boolean
  readonly hasAgent: boolean
  /** Key of the vsock device whose daemon reads the guest's memory. */
  readonly vsock: string | undefined
  readonly files: Map<string, FileFacts>
  livePorts: readonly number[]
  /** What its agent has told; undefined without one. */
  guest: GuestFacts | undefined
  rings: readonly Ring[]
  memoryForm: MemoryForm
  unplugged: string
  stoppedAt: number
}

interface Step {
  readonly name: string
  readonly isNeeded?: (work: Suspend) => boolean
  readonly make: (work: Suspend) => Promise<void>
  /** Also for a step that was not done, or by another daemon. Must not depend on what `make` has kept in memory. */
  readonly undo?: (
    work: Pick<Suspend, 'instance' | 'folder' | 'id' | 'wasRunning' | 'hasAgent'>,
  ) => Promise<void>
}

/** How long a guest stays at rest that was asked for it: until it stands still. */
const QUIESCE_MS = 60_000

/** In this order; undone in the reverse order. After the last one there is a saved machine, and no other. */
const STEPS: readonly Step[] = [
  {
    name: 'quiesce',
    isNeeded: ({ request }) => request.quiesce,
    make: ({ instance }) => quiesce(instance, QUIESCE_MS),
    undo: async ({ instance }) => void (await thaw(instance)),
  },
  {
    name: 'detach',
    isNeeded: ({ hasAgent }) => hasAgent,
    make: async (work) => {
      work.instance.beginBoot('the machine is being saved, want Attach again from the offset')
      Object.assign(work, await detach(work.instance))
    },
    undo: async ({ instance }) => {
      for (const port of await closedPorts(instance)) await listenAgain(instance, port)
      await attachStreams(instance)
    },
  },
  {
    name: 'unplug',
    isNeeded: ({ vsock }) => vsock !== undefined,
    make: async (work) => {
      const { instance, vsock = '' } = work
      await unplugForAWhile(instance, vsock, instance.context.limits.unplugMs)
      const { words } = instance.recorded.steps.find(({ step }) => step === 'replug') ?? {}
      work.unplugged = words?.[1] ?? ''
    },
    undo: ({ instance }) => settleReplugs(instance),
  },
  {
    name: 'stop',
    make: async (work) => {
      work.stoppedAt = performance.now()
      await work.instance.machine().qmp.execute('stop', {}, work.instance.ending)
    },
    undo: async ({ instance, wasRunning }) => {
      if (wasRunning) await instance.machine().qmp.execute('cont', {}, instance.ending)
    },
  },
  {
    name: 'folder',
    make: async ({ work }) => {
      await mkdir(dirname(work), { recursive: true, mode: 0o700 })
      await mkdir(work, { mode: 0o700 })
    },
    undo: ({ folder, id }) => removeWork(folder, id),
  },
  { name: 'memory', make: saveMemory },
  {
    name: 'devices',
    make: async ({ files, instance, memoryForm: form, work }) => {
      const path = join(work, FILES.devices)
      await saveDevices(instance.machine().qmp, { path, form, signal: instance.ending })
      files.set(FILES.devices, await factsOf(path))
    },
    undo: ({ instance }) => cancelSaving(instance.machine().qmp, instance.ending),
  },
  { name: 'disks', make: saveDisks },
  { name: 'rings', make: saveRings },
  {
    name: 'manifest',
    make: async (work) => {
      const { log } = work.instance.context
      await publish(work.folder, await manifestOf(work), (error) =>
        log.error('folder of a saved machine not finished', { folder: work.folder, error: messageOf(error) }),
      )
    },
  },
]

export interface SuspendParts {
  readonly folder: string
  readonly host: HostFacts
  readonly atStep: AtStep
}

/** Saves the machine, and ends the instance. When it fails before that, the machine goes on. */
export async function suspend(
  instance: MachineInstance,
  request: SuspendInstanceRequest,
  { folder, host, atStep }: SuspendParts,
  caller: Pick<Caller, 'inStep'>,
): Promise<SavedMachine> {
  const { recorded, record, context } = instance
  const { qmp } = instance.machine()
  const wasRunning = record.current === State.RUNNING
  const hasAgent = !request.withoutAgent && hasAgentWay(instance)
  await settleReplugs(instance)
  const vsock = await checkSuspend(instance, { wasRunning, hasAgent })
  if (vsock === undefined) await checkSavable(qmp, instance.ending)
  await checkFree(folder)
  const id = randomUUID()
  const work: Suspend = {
    ...{
      instance,
      request,
      folder,
      work: workOf(folder, id),
      id,
      host,
      wasRunning,
      hasAgent,
      vsock,
    },
    ...{ files: new Map(), livePorts: [], guest: undefined, rings: [] },
    ...{ memoryForm: 'stream', unplugged: '', stoppedAt: 0 },
  }
  const begun = performance.now()
  const step = suspendStep(work)
  await recorded.commit({ add: [step], kind: 'state', text: `the machine is being saved in ${folder}` })
  const times: SavedMachine['steps'] = []
  const done: Step[] = []
  try {
    for (const each of STEPS) {
      if (each.isNeeded?.(work) === false) continue
      await atStep('export', each.name)
      caller.inStep(`saving the machine: ${each.name}`)
      const from = performance.now()
      done.unshift(each)
      await each.make(work)
      times.push({ name: each.name, durationUs: us(performance.now() - from) })
    }
  } catch (error) {
    await undo(work, done)
    const text = `the machine was not saved: ${messageOf(error)}`
    await recorded.note({ drop: [step], kind: 'state', text })
    throw named(error, done[0]?.name ?? 'begin', folder)
  }
  const stoppedUs = us(performance.now() - work.stoppedAt)
  await atStep('export', 'end')
  caller.inStep('ending the machine that was saved')
  await instance
    .finishRemoval()
    .catch((error) => context.log.error('saved machine not removed', { error: messageOf(error) }))
  const saved = await describeSaved(folder, await readManifest(folder))
  context.log.info('machine saved', { folder, ...Object.fromEntries(times.map(msOf)) })
  return { ...saved, steps: times, stoppedUs, waitingUs: us(performance.now() - begun) }
}

function us(ms: number): bigint {
  return BigInt(Math.round(ms * 1000))
}

function msOf({ name, durationUs }: SavedMachine['steps'][number]): readonly [string, string] {
  return [`${name}_ms`, (Number(durationUs) / 1000).toFixed(1)]
}

/** The step in front of what went wrong. */
function named(error: unknown, step: string, folder: string): unknown {
  const told = fileError(folder, error)
  if (!(told instanceof AgentError)) return told
  return new AgentError(told.code, `${step}: ${told.message}`, { cause: error })
}

/** Words are as the table of steps has them. */
function suspendStep({ folder, hasAgent, id, instance, wasRunning }: Suspend): StepRecord {
  const state = wasRunning ? 'running' : 'paused'
  return instance.recorded.step('suspend', ['', folder, id, state, hasAgent ? 'agent' : ''])
}

/** Undoes what another daemon has begun. The machine is there. */
export async function undoSuspend(instance: MachineInstance, { words }: StepRecord): Promise<void> {
  const [, folder = '', id = '', state, agent] = words
  const work = {
    ...{ instance, folder, id },
    wasRunning: state === 'running',
    hasAgent: agent === 'agent',
  }
  // It may not have gone so far that there was anything to thaw.
  await undo(work, STEPS.filter(({ name }) => name !== 'quiesce').toReversed())
}

async function undo(work: Parameters<NonNullable<Step['undo']>>[0], steps: readonly Step[]): Promise<void> {
  const { context } = work.instance
  // The guest has to run before it can take its device again, and have that before it can be asked.
  const order = ['devices', 'folder', 'stop', 'unplug', 'detach', 'quiesce']
  const wanted = order.flatMap((name) => steps.find((step) => step.name === name) ?? [])
  for (const step of wanted) {
    if (step.name === 'detach' && !work.hasAgent) continue
    await step
      .undo?.(work)
      .catch((error) => context.log.warn('undo step failed', { step: step.name, error: messageOf(error) }))
  }
}

/** Throws naming what cannot be saved. Returns the key of the device that is unplugged for it. */
async function checkSuspend(
  instance: MachineInstance,
  { wasRunning, hasAgent }: Pick<Suspend, 'wasRunning' | 'hasAgent'>,
): Promise<string | undefined> {
  const { record, recorded, key } = instance
  const fail = (text: string) => new AgentError('FAILED_PRECONDITION', text)
  const { board, backends, devices } = specificationOf(instance)
  const [leaving] = record.leaving
  if (leaving !== undefined) throw fail(`${pathOf('devices', leaving)}: leaving the machine`)
  const busy = recorded.steps.find(({ step }) => UNFINISHED.includes(step))
  if (busy !== undefined) throw fail(`instance ${key}: step ${busy.step} has not ended`)
  let vsock: string | undefined
  for (const [name, device] of Object.entries(devices)) {
    const refusal = refusalOf(device, backends[device.backend])
    if (refusal !== undefined) throw fail(`${pathOf('devices', name)}: ${refusal}`)
    if (backends[device.backend]?.vsockDaemon === undefined) continue
    vsock = name
    const at = pathOf('devices', name)
    const cannot = `${at}: its daemon reads the guest's memory, so it has to leave`
    if (record.document !== undefined) throw fail(`${cannot}, and that of a document cannot`)
    if (board?.machine === 'microvm') throw fail(`${cannot}, and machine microvm lets none go`)
    if (/q35/.test(board?.machine ?? '') && device.port === '')
      throw fail(`${cannot}, and the first bus of q35 lets none go, want it in a root port`)
    if (!wasRunning) throw fail(`${cannot}, and the guest is paused, want it running`)
  }
  if (hasAgent && !wasRunning)
    throw fail(`instance ${key}: paused, and its agent cannot be asked, want it running or without_agent`)
  return vsock
}

const UNFINISHED: readonly string[] = ['plug', 'reset', 'replace', 'snapshot', 'merge', 'suspend', 'replug']

function refusalOf({ disk }: Device, backend: Backend | undefined): string | undefined {
  if (disk?.nvme) return 'an NVMe disk cannot be saved, want a virtio one'
  if (backend?.vhostUser !== undefined)
    return "a vhost-user daemon reads the guest's memory, want it unplugged"
  if (backend?.virtiofsd !== undefined) return "virtiofsd reads the guest's memory, want it unplugged"
  if (backend?.folder !== undefined) return 'a folder that QEMU serves cannot be saved'
  if (backend?.file?.access === File_Access.SCRATCH)
    return 'what the guest has written to access SCRATCH is not saved, want READ_WRITE'
  return undefined
}

async function saveMemory(work: Suspend): Promise<void> {
  const { instance } = work
  const children = await answer(instance.context, instance.machine().holder.children())
  const pid = children.find(({ name, exit }) => name === QEMU.child && exit === undefined)?.pid ?? 0
  const { memoryMib = 0n } = specificationOf(instance).board ?? {}
  const memory = await memoryOf(pid, Number(memoryMib) * 2 ** 20)
  work.memoryForm = memory === undefined ? 'stream' : 'file'
  if (memory !== undefined)
    work.files.set(FILES.memory, await copySparse(memory, join(work.work, FILES.memory)))
}

/** The layers of snapshots, and UEFI's variables. The guest's writes are in them by now. */
async function saveDisks({ files, instance, work }: Suspend): Promise<void> {
  const { context, record } = instance
  for (const { id } of record.layers) {
    const name = `disks/${id}.qcow2`
    await bring(layerPath(context.folder, id), join(work, name), 'link')
    files.set(name, await factsOf(join(work, name)))
  }
  if (!instance.recorded.steps.some(({ step }) => step === 'variables')) return
  await bring(join(context.folder, VARIABLES), join(work, VARIABLES), 'copy')
  files.set(VARIABLES, await factsOf(join(work, VARIABLES)))
}

async function saveRings(saving: Suspend): Promise<void> {
  const { files, instance, work } = saving
  const { context, streams } = instance
  const rings = await drainedRings(instance)
  saving.rings = rings.filter(({ number }) => number === 0 || streams.has(number))
  for (const { number } of saving.rings) {
    const name = number === 0 ? 'console.ring' : `streams/${number}.ring`
    await bring(join(context.folder, name), join(work, name), 'copy')
    files.set(name, await factsOf(join(work, name)))
  }
}

/** So often the holder must have nothing more to read, in turns of its loop: QEMU, which stands still, has sent all before. */
const QUIET_TURNS = 3
const TURN_MS = 5

/** The rings of the holder, once they have all that QEMU has sent. */
async function drainedRings(instance: MachineInstance): Promise<readonly Ring[]> {
  const { holder } = instance.machine()
  for (let [before, quiet] = ['', 0]; ; ) {
    const rings = await answer(instance.context, holder.rings())
    const now = rings.map(({ end, number }) => `${number}:${end}`).join()
    quiet = now === before ? quiet + 1 : 0
    if (quiet === QUIET_TURNS) return rings
    before = now
    await delay(TURN_MS)
  }
}

async function manifestOf(work: Suspend): Promise<Manifest> {
  const { files, hasAgent, host, id, instance, livePorts, memoryForm, request, unplugged } = work
  const { record, streams } = instance
  const createdMs = Date.now()
  const path = join(work.work, FILES.state)
  await writeState(path, instance, { ...work, createdMs })
  files.set(FILES.state, await factsOf(path))
  const { board, backends } = specificationOf(instance)
  const boot = (['kernel', 'initrd', 'vmlinux'] as const).flatMap((name) =>
    board?.[name] ? [{ field: `board.${name}`, backend: '', path: board[name] }] : [],
  )
  const disks = Object.entries(backends).flatMap(([backend, { file }]) =>
    file === undefined
      ? []
      : [{ field: pathOf('backends', backend, 'file', 'path'), backend, path: file.path }],
  )
  return {
    version: 1,
    ...{ id, name: request.name, tenant: record.properties?.tenant ?? '', key: instance.key },
    ...{ createdMs, host, state: work.wasRunning ? 'running' : 'paused', memoryForm, hasAgent },
    ...{ isClone: record.clone, unplugged },
    files: Object.fromEntries(files),
    outside: await Promise.all([...boot, ...disks].map(outsideFacts)),
    streams: [...streams.values()].map(({ port, container, exec, stream }) => ({
      ...{ port, container, exec, stream, isLive: livePorts.includes(port) },
    })),
  }
}
