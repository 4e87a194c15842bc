import { randomUUID } from 'node:crypto'
import { mkdir } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { AgentError, messageOf } from '../../base/errors.ts'
import {
  Operation,
  type SavedMachine,
  State,
  type SuspendInstanceRequest,
} from '../../gen/microvm/instance/v1/instance.ts'
import type { InstanceRecord, StepRecord } from '../../gen/microvm/instance/v1/records.ts'
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
import { checkSuspend, disksOf, refuseWrites } from './check-suspend.ts'
import type { AtStep } from './faults.ts'
import { detach, endCallers } from './guest.ts'
import { cancelSaving, checkSavable, goOn, type MemoryForm, saveDevices } from './machine-state.ts'
import { FILES, type HostFacts, type Manifest, type OutsideFile, readManifest } from './manifest.ts'
import { copySparse, type FileFacts, factsOf, memoryOf } from './memory-file.ts'
import type { GuestFacts } from './payloads/ask-guest.ts'
import { bring, checkFree, describeSaved, outsideFacts, publish, removeWork, workOf } from './saved-folder.ts'
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
  /** As QEMU has left them. */
  disks: readonly OutsideFile[]
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
      work.guest = await detach(work.instance, (ports) => noteEnded(work.instance, ports))
    },
    undo: async ({ instance }) => {
      const ended = suspendStepOf(instance)?.words[ENDED]?.split(',').map(Number)
      // It has not begun.
      if (ended === undefined) return
      for (const port of await closedPorts(instance))
        if (!ended.includes(port)) await listenAgain(instance, port)
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
    undo: ({ instance, wasRunning }) => goOn(instance.machine().qmp, { wasRunning, signal: instance.ending }),
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
    make: async (saving) => {
      const { files, instance, memoryForm: form, work } = saving
      const path = join(work, FILES.devices)
      // QEMU locks them no more after it.
      saving.disks = await disksOf(instance)
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
      await publish(work.folder, await manifestOf(work), {
        warn: (error) =>
          log.error('folder of a saved machine not finished', {
            folder: work.folder,
            error: messageOf(error),
          }),
      })
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
  // What an earlier suspend could not let go on.
  if (!wasRunning) await goOn(qmp, { wasRunning, signal: instance.ending })
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
    ...{ files: new Map(), disks: [], guest: undefined, rings: [] },
    ...{ memoryForm: 'stream', unplugged: '', stoppedAt: 0 },
  }
  const begun = performance.now()
  const step = suspendStep(work)
  await recorded.commit({ add: [step], kind: 'state', text: `the machine is being saved as ${request.name}` })
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
    const fault = await undo(work, done)
    const text = `the machine was not saved: ${messageOf(error)}`
    await recorded.note({ set: standing(fault), drop: [step], kind: 'state', text })
    throw named(error, { step: done[0]?.name ?? 'begin', folder, fault })
  }
  const stoppedUs = us(performance.now() - work.stoppedAt)
  await atStep('export', 'end')
  caller.inStep('ending the machine that was saved')
  endCallers(instance)
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

/** The step in front of what went wrong, and what else did in its undo. */
function named(
  error: unknown,
  { step, folder, fault }: { readonly step: string; readonly folder: string; readonly fault: string },
): unknown {
  const told = fileError(folder, error)
  if (!(told instanceof AgentError)) return told
  return new AgentError(told.code, [`${step}: ${told.message}`, ...(fault ? [fault] : [])].join('; '), {
    cause: error,
  })
}

/** What the record says of a machine that does not go on, which `fault` is the reason of. */
function standing(fault: string): Partial<InstanceRecord> {
  return fault === '' ? {} : { current: State.PAUSED, desired: State.PAUSED, reason: fault }
}

/** Words are as the table of steps has them. */
function suspendStep({ folder, hasAgent, id, instance, wasRunning }: Suspend): StepRecord {
  const state = wasRunning ? 'running' : 'paused'
  return instance.recorded.step('suspend', ['', folder, id, state, hasAgent ? 'agent' : ''])
}

/** Which word of the step has the ports whose streams have ended. */
const ENDED = 5

function suspendStepOf({ recorded }: MachineInstance): StepRecord | undefined {
  return recorded.steps.find(({ step }) => step === 'suspend')
}

/** Notes the ports whose streams end also when the machine is not saved. */
async function noteEnded(instance: MachineInstance, ports: readonly number[]): Promise<void> {
  const { recorded } = instance
  const words = [...(suspendStepOf(instance)?.words.slice(0, ENDED) ?? []), ports.join()]
  const text = 'the streams of the guest are being stopped'
  await recorded.commit({ add: [recorded.step('suspend', words)], kind: 'state', text })
}

/** Undoes what another daemon has begun. The machine is there. Returns what the record is to say of it. */
export async function undoSuspend(
  instance: MachineInstance,
  { words }: StepRecord,
): Promise<Partial<InstanceRecord>> {
  const [, folder = '', id = '', state, agent] = words
  const work = {
    ...{ instance, folder, id },
    wasRunning: state === 'running',
    hasAgent: agent === 'agent',
  }
  // It may not have gone so far that there was anything to thaw.
  return standing(await undo(work, STEPS.filter(({ name }) => name !== 'quiesce').toReversed()))
}

/** Returns why the machine does not go on; empty when it does. */
async function undo(work: Parameters<NonNullable<Step['undo']>>[0], steps: readonly Step[]): Promise<string> {
  const { context, key } = work.instance
  let fault = ''
  // The guest has to run before it can take its device again, and have that before it can be asked.
  const order = ['devices', 'folder', 'stop', 'unplug', 'detach', 'quiesce']
  const wanted = order.flatMap((name) => steps.find((step) => step.name === name) ?? [])
  for (const { name, undo: undoStep } of wanted) {
    if (name === 'detach' && !work.hasAgent) continue
    // A guest that stands still cannot be asked; what it was asked for ends by itself once it runs.
    if (fault !== '' && ASKS_GUEST.includes(name)) continue
    await undoStep?.(work).catch((error) => {
      const text = messageOf(error)
      context.log.warn('undo step failed', { step: name, error: text })
      if (name === 'stop') fault = `instance ${key} does not go on: ${text}`
    })
  }
  return fault
}

const ASKS_GUEST: readonly string[] = ['detach', 'quiesce']

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

/** What a resume tells of the suspend. */
function timesOf({ recorded: { timeline } }: MachineInstance): Pick<Manifest, 'operation' | 'standing'> {
  if (timeline === undefined) return {}
  const operation = Operation.encode(timeline.operation()).finish()
  return { operation: Buffer.from(operation).toString('base64'), standing: timeline.since }
}

async function manifestOf(work: Suspend): Promise<Manifest> {
  const { files, hasAgent, host, id, instance, memoryForm, request, rings, unplugged } = work
  const { record, streams } = instance
  const createdMs = Date.now()
  const path = join(work.work, FILES.state)
  await writeState(path, instance, { ...work, createdMs })
  files.set(FILES.state, await factsOf(path))
  await refuseWrites(instance, work.disks)
  const { board } = specificationOf(instance)
  const boot = (['kernel', 'initrd', 'vmlinux'] as const).flatMap((name) =>
    board?.[name] ? [{ field: `board.${name}`, backend: '', path: board[name] }] : [],
  )
  return {
    version: 1,
    ...{ id, name: request.name, tenant: record.properties?.tenant ?? '', key: instance.key },
    ...{ createdMs, host, state: work.wasRunning ? 'running' : 'paused', memoryForm, hasAgent },
    ...{ isClone: record.clone, unplugged },
    files: Object.fromEntries(files),
    outside: [...(await Promise.all(boot.map(outsideFacts))), ...work.disks],
    ...timesOf(instance),
    streams: [...streams.values()].map(({ port, container, exec, stream }) => ({
      ...{
        port,
        container,
        exec,
        stream,
        isLive: hasAgent && rings.some(({ isClosed, number }) => number === port && !isClosed),
      },
    })),
  }
}
