import { randomBytes, randomUUID } from 'node:crypto'
import { join } from 'node:path'
import { AgentError, messageOf } from '../../base/errors.ts'
import { ResumedRequest } from '../../gen/microvm/agent/v1/lifecycle.ts'
import { PlugRequest, type SavedInit, State } from '../../gen/microvm/instance/v1/instance.ts'
import { type InstanceRecord, type StepRecord, StreamRecord } from '../../gen/microvm/instance/v1/records.ts'
import { vsockTaken } from '../instance/connect-agent.ts'
import { plugBack } from '../instance/devices/plug.ts'
import { answer } from '../instance/holder/ask-holder.ts'
import type { MachineInstance } from '../instance/instance.ts'
import type { Caller } from '../instance/instances.ts'
import { guestSocket } from '../instance/machine/daemon-steps.ts'
import { QEMU } from '../instance/machine/machine.ts'
import type { SavedStart } from '../instance/machine/saved-start.ts'
import { makeSteps, RUNS } from '../instance/machine/steps.ts'
import type { SavedContent } from '../instance/moves.ts'
import { readClaim, resumedAlready } from '../instance/record/saved-claim.ts'
import { withOperation } from '../instance/record/timeline.ts'
import type { Change } from '../instance/registry/registry.ts'
import { pathOf } from '../spec/component-path.ts'
import type { AtStep } from './faults.ts'
import { repair } from './guest.ts'
import { loadDevices } from './machine-state.ts'
import { FILES, type HostFacts, type Manifest, readManifest } from './manifest.ts'
import { fillMemory, memoryOf } from './memory-file.ts'
import {
  bring,
  checkContent,
  checkHost,
  checkOutside,
  isOpen,
  operationOf,
  removeContent,
} from './saved-folder.ts'
import { restoreStreams } from './saving/restore-streams.ts'
import { checkState, readState } from './state-file.ts'

export interface ResumeParts {
  readonly folder: string
  readonly host: HostFacts
  readonly atStep: AtStep
}

/** Runs a check of files, unless they are as they were when they were checked before. */
export type CheckOnce = (name: string, paths: readonly string[], check: () => Promise<void>) => Promise<void>

/** Checks a saved machine whole, before anything starts. */
export async function openSaved(
  init: SavedInit,
  { folder, host, atStep }: ResumeParts,
  once: CheckOnce = (_name, _paths, check) => check(),
): Promise<SavedContent & { readonly manifest: Manifest }> {
  const manifest = await readManifest(folder)
  const claim = await readClaim(folder)
  // What was resumed has no files left, so this is told first; an instance whose making is repeated takes its own claim over.
  if (claim !== undefined && !(await isOpen(folder))) throw resumedAlready(folder, claim)
  checkHost(folder, manifest, host)
  const { files, id } = manifest
  const content = [FILES.manifest, ...Object.keys(files)].map((name) => join(folder, name))
  await once(id, content, () => checkContent(folder, manifest))
  const replaced = replacedRecord(await readState(join(folder, FILES.state)), init)
  await checkState(replaced, { folder, manifest })
  for (const file of manifest.outside) {
    const { path } = replaced.specification?.backends[file.backend]?.file ?? file
    await once(`${id} ${file.field}`, [path], () => checkOutside(file, path))
  }
  return {
    manifest,
    record: {
      ...replaced,
      ...{ savedName: init.name, savedFolder: folder, savedId: manifest.id },
      operations: [operationOf(manifest) ?? []].flat(),
      ...{ clone: manifest.isClone, generationId: randomUUID() },
    },
    start: (instance) => startOf(instance, { folder, manifest, atStep }),
  }
}

interface Opened {
  readonly folder: string
  readonly manifest: Manifest
  readonly atStep: AtStep
  /** What is plugged in, in place of the device that was unplugged. */
  readonly ownPlug?: (request: PlugRequest) => PlugRequest
}

export function startOf(
  instance: MachineInstance,
  opened: Opened,
  step: SavedStart['step'] = 'resume',
): SavedStart {
  const { context, key, recorded } = instance
  const { folder, manifest } = opened
  const streams = manifest.streams.map(({ isLive: _, ...stream }) => ({ ...stream, instance: key }))
  return {
    step,
    words: recorded.steps.find((each) => each.step === step)?.words ?? ['', folder, manifest.id, key],
    steps: streams.map(({ port }) => {
      const socket = `${guestSocket(context.folder)}_${port}`
      return recorded.step('stream', [`${port}`, socket, join(context.folder, 'streams', `${port}.ring`)])
    }),
    rows: streams.map((stream) => ({
      table: 'streams',
      key: `${key}/${stream.port}`,
      payload: StreamRecord.encode(stream).finish(),
    })),
    bring: async () => {
      await bringFiles(opened, context.folder)
      instance.recorded.timeline?.begin('machine')
    },
    load: async () => {
      await load(instance, opened)
      if (manifest.state === 'running') await run(instance)
    },
  }
}

/** Lets a machine run that was loaded. From then on the saved one is of no use, whatever happens. */
async function run(instance: MachineInstance): Promise<void> {
  const { recorded } = instance
  const { qmp } = instance.machine()
  const step = recorded.steps.find((each) => each.step === 'resume' || each.step === 'revert')
  if (step === undefined) return
  // A QEMU that has ended by now has not run it.
  await qmp.execute('query-status', {}, instance.ending)
  const text = 'the saved machine is to run'
  const runs = { ...step, words: [...step.words.slice(0, RUNS_WORD), RUNS] }
  await recorded.commit({ add: [runs], kind: 'state', text })
  try {
    await qmp.execute('cont', {}, instance.ending)
  } catch (error) {
    // QEMU has refused it.
    if (!qmp.isClosed && !instance.ending.aborted)
      await recorded.commit({ add: [step], kind: 'state', text: messageOf(error) })
    throw error
  }
}

export const RUNS_WORD = 4

/** With other backends, to which the layers and the snapshots follow. */
export function replacedRecord(
  record: InstanceRecord,
  { replaceComponents }: SavedInit,
  field = 'saved',
): InstanceRecord {
  const { specification } = record
  const keys = Object.keys(replaceComponents)
  if (keys.length === 0 || specification === undefined) return record
  const fail = (key: string, text: string) =>
    new AgentError('FAILED_PRECONDITION', `${field}.${pathOf('replaceComponents', key)}: ${text}`)
  const moved = new Map<string, string>()
  for (const [key, backend] of Object.entries(replaceComponents)) {
    if (record.document !== undefined) throw fail(key, 'names of a document are looked up in the catalogue')
    const present = specification.backends[key]
    if (present === undefined && specification.devices[key] !== undefined)
      throw fail(
        key,
        `a device, which stays as the guest knows it, want its backend ${specification.devices[key].backend}`,
      )
    if (present === undefined) throw fail(key, 'no such backend, only backends can be replaced')
    const [kind, wanted] = [backend, present].map((each) =>
      Object.entries(each)
        .flatMap(([name, value]) => (value === undefined ? [] : [name]))
        .join(),
    )
    if (kind !== wanted) throw fail(key, `${kind}, want ${wanted} as before: the guest would see it`)
    if (present.file?.access !== backend.file?.access) throw fail(key, 'another access than before')
    if (present.file !== undefined && backend.file !== undefined)
      moved.set(present.file.path, backend.file.path)
  }
  const specOf = (present: NonNullable<typeof specification>) => ({
    ...present,
    backends: { ...present.backends, ...replaceComponents },
  })
  return {
    ...record,
    specification: specOf(specification),
    layers: record.layers.map((layer) => ({ ...layer, base: moved.get(layer.base) ?? layer.base })),
    snapshots: record.snapshots.map((snapshot) => ({
      ...snapshot,
      ...(snapshot.specification && { specification: specOf(snapshot.specification) }),
    })),
  }
}

/** What is not brought into the folder of the instance. */
export const LOADED: readonly string[] = [FILES.state, FILES.memory, FILES.devices]

async function bringFiles({ atStep, folder, manifest }: Opened, to: string): Promise<void> {
  await atStep('import', 'files')
  for (const name of Object.keys(manifest.files))
    if (!LOADED.includes(name)) await bring(join(folder, name), join(to, name), 'copy')
}

/** Gives a machine, which waits for it, the state of a saved one. */
export async function load(
  instance: MachineInstance,
  { folder, manifest, atStep, ownPlug = (request) => request }: Opened,
): Promise<void> {
  const { context, recorded } = instance
  const { holder, qmp } = instance.machine()
  // Private memory is there from the start.
  if (manifest.memoryForm === 'file' && instance.record.privateMemory === '') {
    await atStep('import', 'memory')
    const children = await answer(context, holder.children())
    const pid = children.find(({ name, exit }) => name === QEMU.child && exit === undefined)?.pid ?? 0
    const memory = await memoryOf(pid, manifest.files[FILES.memory]?.sizeBytes ?? 0)
    if (memory === undefined) throw new AgentError('INTERNAL', 'QEMU: its memory is not one file')
    await fillMemory(join(folder, FILES.memory), memory)
  }
  await atStep('import', 'devices')
  const path = join(folder, FILES.devices)
  await loadDevices(qmp, { path, form: manifest.memoryForm, signal: instance.ending })
  await atStep('import', 'streams')
  await restoreStreams(instance, manifest.streams)
  if (manifest.unplugged !== '') {
    await atStep('import', 'plug')
    const request = ownPlug(PlugRequest.decode(Buffer.from(manifest.unplugged, 'base64')))
    await plugBack(instance, { ...request, key: instance.key }, instance.plugParts)
  }
  await atStep('import', 'cont')
  context.log.info('saved machine loaded', { instance: recorded.key, folder })
}

/** Starts the machine, and tells its guest. When the guest is not ready in time, it runs all the same. */
export async function resume(
  instance: MachineInstance,
  content: SavedContent,
  init: SavedInit,
  { atStep, caller }: { readonly atStep: AtStep; readonly caller: Pick<Caller, 'inStep'> },
): Promise<void> {
  const folder = content.record.savedFolder ?? ''
  const manifest = await readManifest(folder)
  caller.inStep('loading the saved machine')
  const desired = manifest.state === 'running' ? State.RUNNING : State.PAUSED
  const removed = () =>
    removeContent(folder, manifest).catch((error) =>
      instance.context.log.warn('files of a saved machine not removed', { error: messageOf(error) }),
    )
  try {
    await instance.start({ isNew: true, desired, saved: content.start(instance) })
  } catch (error) {
    // Its guest may have run.
    if ((await readClaim(folder))?.folder === instance.context.folder) await removed()
    throw error
  }
  await atStep('import', 'commit')
  const request = ResumedRequest.fromPartial({
    generation: `${manifest.id}/${randomBytes(8).toString('hex')}`,
    seed: randomBytes(64),
    ...(init.identity && { identity: init.identity }),
  })
  await commitResume(instance, manifest.hasAgent ? request : undefined, { macs: content.macs })
  if (content.macs === undefined) await removed()
  await atStep('import', 'repair')
  caller.inStep('waiting until the guest is ready')
  await repairOrRemove(instance)
}

/**
 * Tells the guest that it was restored. A clone that was never ready is removed: it may be the same as others. To be called in a
 * change.
 */
export async function repairOrRemove(instance: MachineInstance): Promise<void> {
  try {
    await settleRepair(instance)
  } catch (error) {
    if (isNewClone(instance)) await instance.finishRemoval()
    throw error
  }
}

/** Whether it is a clone whose guest was never ready. */
export function isNewClone({ recorded }: Pick<MachineInstance, 'recorded'>): boolean {
  const isOfClone = ({ step, words: [of] }: StepRecord) => step === 'repair' && of !== AFTER_REVERT
  return recorded.record.madeByClone && recorded.steps.some(isOfClone)
}

/** The steps of starts with a saved state. */
const STARTS: readonly string[] = ['resume', 'clone', 'revert', 'incoming']

/** First word of the step of a guest that is to be told of a revert. */
const AFTER_REVERT = 'revert'

/** The machine runs, and is no saved one any more. */
export async function commitResume(
  instance: MachineInstance,
  request: ResumedRequest | undefined,
  {
    macs = new Map(),
    current = instance.record.current,
    set = {},
    rows = [],
  }: {
    readonly macs?: ReadonlyMap<string, string> | undefined
    readonly current?: State
    readonly set?: Partial<InstanceRecord>
    /** Of the table of settings. */
    readonly rows?: readonly Change[]
  } = {},
): Promise<void> {
  const { recorded } = instance
  const drop = recorded.steps.filter(({ step }) => STARTS.includes(step))
  const after = drop.some(({ step }) => step === 'revert') ? AFTER_REVERT : ''
  const words = request && Buffer.from(ResumedRequest.encode(request).finish()).toString('base64')
  const add = words === undefined ? [] : [recorded.step('repair', [after, words, ...[...macs].flat()])]
  const { operations } = recorded.record
  const operation = instance.recorded.timeline?.operation()
  await recorded.commit({
    set: {
      ...{ ...set, current, desired: current },
      operations: operation === undefined ? operations : withOperation(operations, operation),
    },
    add,
    drop,
    rows,
    kind: 'state',
    text: 'the saved machine goes on',
  })
}

/** Tells the guest that it was restored, unless it has been told and is ready. */
export async function settleRepair(instance: MachineInstance): Promise<void> {
  const { recorded } = instance
  for (const step of recorded.steps.filter((each) => each.step === 'repair')) {
    const [, text = '', ...macs] = step.words
    const request = ResumedRequest.decode(Buffer.from(text, 'base64'))
    const told = () =>
      recorded.note({ drop: [step], kind: 'state', text: 'the guest was told of its restore' })
    try {
      await vsockTaken(instance)
      await repair(instance, request, macs)
    } catch (error) {
      if (!(error instanceof AgentError)) throw error
      // It has told that it fails; otherwise it is told again by the next call, or the next daemon. A new clone is removed.
      if (error.code === 'FAILED_PRECONDITION' && !isNewClone(instance)) await told()
      throw new AgentError(error.code, `instance ${instance.key}: ${error.message}`, { cause: error })
    }
    await connectTaps(instance)
    await told()
  }
}

/**
 * Sets up what a start has left down: until its repair, the guest of a clone has the addresses of the original, and a machine that
 * arrives runs elsewhere until the controller has answered. Resolves with whether there are any; they may be up already.
 */
export async function connectTaps(instance: MachineInstance): Promise<boolean> {
  const { context, recorded } = instance
  const taps = (await instance.planned()).filter(({ step }) => step === 'tap')
  if (taps.length === 0) return false
  const add = taps.map(({ step, words }) => recorded.step(step, words))
  await recorded.note({ add, kind: 'state', text: 'the taps of the machine are being set up' })
  await makeSteps(context, taps, recorded.record)
  return true
}

/** Decides what becomes of a resume that another daemon has begun. Returns whether the instance is gone. */
export async function settleResume(instance: MachineInstance, { words }: StepRecord): Promise<boolean> {
  const { context } = instance
  const { machine } = context
  const hasRun =
    words[RUNS_WORD] === RUNS ||
    (machine !== undefined && (await machine.qmp.execute('query-status', {}, instance.ending)).running)
  if (!hasRun) {
    await instance.finishRemoval()
    return true
  }
  const [, folder = ''] = words
  const manifest = await readManifest(folder).catch(() => undefined)
  const request = ResumedRequest.fromPartial({
    generation: `${manifest?.id ?? ''}/${randomBytes(8).toString('hex')}`,
    seed: randomBytes(64),
  })
  await commitResume(instance, manifest?.hasAgent ? request : undefined, { current: State.RUNNING })
  if (manifest !== undefined)
    await removeContent(folder, manifest).catch((error) =>
      context.log.warn('files of a saved machine not removed', { error: messageOf(error) }),
    )
  return false
}
