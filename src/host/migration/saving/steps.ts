import { mkdir } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { AgentError, messageOf } from '../../../base/errors.ts'
import { type SavedMachine, State } from '../../../gen/microvm/instance/v1/instance.ts'
import type { InstanceRecord, StepRecord } from '../../../gen/microvm/instance/v1/records.ts'
import { attachStreams, quiesce, thaw } from '../../instance/ask-agent.ts'
import { settleReplugs, unplugForAWhile } from '../../instance/devices/replug.ts'
import { recordedText } from '../../instance/documents/hidden-files.ts'
import type { MachineInstance } from '../../instance/instance.ts'
import type { Caller } from '../../instance/instances.ts'
import { fileError } from '../../instance/snapshots/overlay-file.ts'
import { closedPorts, listenAgain } from '../../instance/streams.ts'
import type { AtStep } from '../faults.ts'
import { detach } from '../guest.ts'
import { cancelSaving, goOn, saveDevices } from '../machine-state.ts'
import { FILES } from '../manifest.ts'
import { removeWork } from '../saved-folder.ts'
import { disksOf } from './check-suspend.ts'
import type { Saving } from './saving.ts'

export interface Step {
  readonly name: string
  readonly isNeeded?: (saving: Saving) => boolean
  readonly make: (saving: Saving) => Promise<void>
  /** Also for a step that was not done, or by another daemon. Must not depend on what `make` has kept in memory. */
  readonly undo?: (saving: Undone) => Promise<void>
}

type Undone = Pick<Saving, 'instance' | 'folder' | 'id' | 'wasRunning' | 'hasAgent'>

/** How long a guest stays at rest that was asked for it: until it stands still. */
const QUIESCE_MS = 60_000

/** What is done with each machine that is saved, in the order of the operation. */
export const SAVING = {
  quiesce: {
    name: 'quiesce',
    isNeeded: ({ request }) => request.quiesce,
    make: async ({ instance }) => {
      await noteRest(instance, true)
      await quiesce(instance, QUIESCE_MS).catch(async (error) => {
        // It may be at rest for others.
        if (error?.code === 'FAILED_PRECONDITION') await noteRest(instance, false)
        throw error
      })
    },
    undo: async ({ instance }) => {
      if (isAtRest(savingStepOf(instance))) await thaw(instance)
    },
  },
  detach: {
    name: 'detach',
    isNeeded: ({ hasAgent }) => hasAgent,
    make: async (saving) => {
      saving.instance.beginBoot('the machine is being saved, want Attach again from the offset')
      saving.guest = await detach(saving.instance, (ports) => noteEnded(saving.instance, ports))
    },
    undo: async ({ instance }) => {
      const ended = savingStepOf(instance)?.words[ENDED]?.split(',').map(Number)
      // It has not begun.
      if (ended === undefined) return
      for (const port of await closedPorts(instance))
        if (!ended.includes(port)) await listenAgain(instance, port)
      await attachStreams(instance)
    },
  },
  unplug: {
    name: 'unplug',
    isNeeded: ({ vsock }) => vsock !== undefined,
    make: async (saving) => {
      const { instance, vsock = '' } = saving
      await unplugForAWhile(instance, vsock, instance.context.limits.unplugMs)
      const { words } = instance.recorded.steps.find(({ step }) => step === 'replug') ?? {}
      saving.unplugged = words?.[1] ?? ''
    },
    undo: ({ instance }) => settleReplugs(instance),
  },
  stop: {
    name: 'stop',
    make: async (saving) => {
      saving.stoppedAt = performance.now()
      await saving.instance.machine().qmp.execute('stop', {}, saving.instance.ending)
    },
    undo: ({ instance, wasRunning }) => goOn(instance.machine().qmp, { wasRunning, signal: instance.ending }),
  },
  folder: {
    name: 'folder',
    make: async ({ work }) => {
      await mkdir(dirname(work), { recursive: true, mode: 0o700 })
      await mkdir(work, { mode: 0o700 })
    },
    undo: ({ folder, id }) => removeWork(folder, id),
  },
  devices: {
    name: 'devices',
    make: async (saving) => {
      const { instance, memoryForm: form, work } = saving
      const { recorded, streams } = instance
      saving.known = { record: recorded.record, steps: recorded.steps, streams: [...streams.values()] }
      // QEMU locks them no more after it.
      saving.disks = await disksOf(instance)
      const path = join(work, FILES.devices)
      await saveDevices(instance.machine().qmp, { path, form, signal: instance.ending })
    },
    undo: ({ instance }) => cancelSaving(instance.machine().qmp, instance.ending),
  },
} as const satisfies Readonly<Record<string, Step>>

/** The guest has to run before it can take its device again, and have that before it can be asked. */
const UNDO_ORDER: readonly Step[] = [
  ...[SAVING.devices, SAVING.folder, SAVING.stop],
  ...[SAVING.unplug, SAVING.detach, SAVING.quiesce],
]

/** Does the steps. When one fails, all is undone, and the machine goes on. Returns for how long each took. */
export async function save(
  saving: Saving,
  steps: readonly Step[],
  {
    atStep,
    caller,
    text,
    failed = 'the machine was not saved',
    doing = 'saving',
  }: {
    readonly atStep: AtStep
    readonly caller: Pick<Caller, 'inStep'>
    readonly text: string
    /** What the record says when it fails, and the caller's step. */
    readonly failed?: string
    readonly doing?: string
  },
): Promise<SavedMachine['steps']> {
  const { folder, instance } = saving
  const { recorded } = instance
  await recorded.commit({ add: [stepOf(saving)], kind: 'state', text })
  const times: SavedMachine['steps'] = []
  const done: Step[] = []
  try {
    for (const each of steps) {
      if (each.isNeeded?.(saving) === false) continue
      await atStep('export', each.name)
      caller.inStep(`${doing} the machine: ${each.name}`)
      const from = performance.now()
      done.unshift(each)
      await each.make(saving)
      times.push({ name: each.name, durationUs: microseconds(performance.now() - from) })
    }
  } catch (error) {
    const fault = instance.isLetGo ? '' : await undo(saving, done)
    const step = done[0]?.name ?? 'begin'
    // The next daemon undoes what is written down.
    if (instance.isLetGo) throw named(error, { step, folder, fault })
    const reason = `${failed}: ${recordedText(error, instance)}`
    await recorded.note({
      set: standing(fault),
      drop: [stepOf(saving)],
      kind: 'state',
      text: reason,
      frees: true,
    })
    throw named(error, { step, folder, fault })
  }
  return times
}

export function microseconds(ms: number): bigint {
  return BigInt(Math.round(ms * 1000))
}

/** As a log has it. */
export function millisecondsOf(times: SavedMachine['steps']): Readonly<Record<string, string>> {
  return Object.fromEntries(
    times.map(({ name, durationUs }) => [`${name}_ms`, (Number(durationUs) / 1000).toFixed(1)]),
  )
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
export function stepOf({ folder, hasAgent, id, instance, step, wasRunning }: Saving): StepRecord {
  const state = wasRunning ? 'running' : 'paused'
  return instance.recorded.step(step, ['', folder, id, state, hasAgent ? AGENT : ''])
}

/** Which words of the step have what is asked of the guest, and the ports whose streams have ended. */
const [ASKED, ENDED] = [4, 5]
/** Its agent takes part, and its pod may be at rest. */
const [AGENT, REST] = ['agent', 'rest']

function asksOf(step: StepRecord | undefined): readonly string[] {
  return step?.words[ASKED]?.split(' ') ?? []
}

function isAtRest(step: StepRecord | undefined): boolean {
  return asksOf(step).includes(REST)
}

/** Notes whether the pod has to be thawed when the machine is not saved. */
async function noteRest(instance: MachineInstance, isAsked: boolean): Promise<void> {
  const { recorded } = instance
  const { step = 'suspend', words = [] } = savingStepOf(instance) ?? {}
  const asks = asksOf(savingStepOf(instance)).filter((each) => each !== REST)
  const asked = [...asks, ...(isAsked ? [REST] : [])].join(' ').trim()
  const add = [recorded.step(step, words.toSpliced(ASKED, 1, asked))]
  const text = isAsked ? 'the pod is being brought to rest' : 'the pod is at rest for others'
  await recorded.commit({ add, kind: 'state', text })
}

/** The step of a machine that is being saved, by this daemon or an earlier one. */
function savingStepOf({ recorded }: Pick<MachineInstance, 'recorded'>): StepRecord | undefined {
  return recorded.steps.find(({ step }) => step === 'suspend' || step === 'memory' || step === 'move')
}

/** Notes the ports whose streams end also when the machine is not saved. */
export async function noteEnded(instance: MachineInstance, ports: readonly number[]): Promise<void> {
  const { recorded } = instance
  const { step = 'suspend', words = [] } = savingStepOf(instance) ?? {}
  const add = [recorded.step(step, [...words.slice(0, ENDED), ports.join()])]
  await recorded.commit({ add, kind: 'state', text: 'the streams of the guest are being stopped' })
}

/** Gives a guest that goes on its device, its streams, and its containers. Returns whether it was at rest until now. */
export async function attachAgain(saving: Saving): Promise<boolean> {
  const { instance, request } = saving
  const { context, recorded } = instance
  await undo(
    saving,
    [SAVING.unplug, SAVING.detach].filter(({ isNeeded }) => isNeeded(saving)),
  )
  const wasAtRest =
    request.quiesce &&
    (await thaw(instance).catch((error) => {
      context.log.warn('guest not thawed', { error: messageOf(error) })
      return false
    }))
  // Another daemon must not let streams go on that have ended since.
  const add = [stepOf({ ...saving, hasAgent: false })]
  await recorded.note({ add, kind: 'state', text: 'the machine goes on' })
  return wasAtRest
}

/** Undoes what another daemon has begun, `own` steps first. The machine is there. Returns what the record is to say of it. */
export async function undoSaving(
  instance: MachineInstance,
  step: StepRecord,
  own: readonly Step[] = [],
): Promise<Partial<InstanceRecord>> {
  const [, folder = '', id = '', state] = step.words
  const hasAgent = asksOf(step).includes(AGENT)
  const saving = { instance, folder, id, wasRunning: state === 'running', hasAgent }
  const isMove = own.length > 0
  const steps = UNDO_ORDER.filter(({ name }) => !(isMove && name === 'folder'))
  return standing(await undo(saving, [...own, ...steps]))
}

/** Returns why the machine does not go on; empty when it does. */
async function undo(saving: Undone, steps: readonly Step[]): Promise<string> {
  const { context, key } = saving.instance
  const names = steps.map(({ name }) => name)
  let fault = ''
  const own = steps.filter(({ name }) => !UNDO_ORDER.some((each) => each.name === name))
  const all = [...own, ...UNDO_ORDER.filter((each) => names.includes(each.name))]
  for (const { name, undo: undoStep } of all) {
    if (name === 'detach' && !saving.hasAgent) continue
    // A guest that stands still cannot be asked; what it was asked for ends by itself once it runs.
    if (fault !== '' && ASKS_GUEST.includes(name)) continue
    await undoStep?.(saving).catch((error) => {
      const text = messageOf(error)
      context.log.warn('undo step failed', { step: name, error: text })
      if (name === 'stop') fault = `instance ${key} does not go on: ${text}`
    })
  }
  return fault
}

const ASKS_GUEST: readonly string[] = ['detach', 'quiesce']
