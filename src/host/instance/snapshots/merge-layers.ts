import { rename, stat } from 'node:fs/promises'
import { AgentError, messageOf } from '../../../base/errors.ts'
import { type Layer, type RemoveSnapshotRequest, State } from '../../../gen/microvm/instance/v1/instance.ts'
import type { StepRecord } from '../../../gen/microvm/instance/v1/records.ts'
import type { QmpClient } from '../../qemu/qmp/client.ts'
import type { Job } from '../../qemu/qmp/commands.ts'
import { pathOf } from '../../spec/component-path.ts'
import type { MachineInstance } from '../instance.ts'
import type { Caller } from '../instances.ts'
import { undoSteps } from '../machine/steps.ts'
import { checkLayers } from './check-layers.ts'
import { removeNodes, whileStill } from './layer-nodes.ts'
import { nextFreeChange, refuseUsed, refuseWrite } from './layer-users.ts'
import {
  changed,
  type LayerChange,
  layerNode,
  layerPath,
  layersUpTo,
  mergedPath,
  nextChange,
} from './layers.ts'
import { withMemory, withoutMemories } from './memory-folder.ts'
import { baseNode, openBlocks, withBlocks } from './open-blocks.ts'
import { fileError, syncFolder } from './overlay-file.ts'
import { snapshotOf } from './revert.ts'

/**
 * Forgets a snapshot, or all, and merges what no other needs. Returns for how long the guest stood still at most, in
 * microseconds. To be called in a change, when no other one of layers is unfinished but merges.
 */
export async function removeSnapshot(
  instance: MachineInstance,
  { all, name }: Pick<RemoveSnapshotRequest, 'all' | 'name'>,
  { isRepeated = false }: Pick<Caller, 'isRepeated'>,
): Promise<number> {
  const { recorded, record } = instance
  if (record.clone) {
    const text = `instance ${instance.key}: a clone, whose layers are on files of other machines, want them to stay`
    throw new AgentError('FAILED_PRECONDITION', text)
  }
  if (!all && !isRepeated) snapshotOf(instance, name)
  const snapshots = record.snapshots.filter((each) => !all && each.name !== name)
  const text = all ? 'all snapshots are removed' : `snapshot ${name} is removed`
  const gone = withMemory(record).filter((each) => !snapshots.includes(each))
  if (snapshots.length < record.snapshots.length)
    await withoutMemories(
      instance.context.folder,
      gone.map((each) => each.name),
      () => recorded.commit({ set: { snapshots }, kind: 'snapshot', text, frees: true }),
    )
  const stillUs = await mergeLayers(instance)
  // Without snapshots, the layers were to be merged.
  if (all && !isRepeated && record.snapshots.length === 0) await refuseUsed(instance)
  return stillUs
}

/** Whether there are layers that no snapshot needs. */
export function canMerge({ record, recorded }: MachineInstance): boolean {
  if (record.clone) return false
  return nextChange(record) !== undefined || recorded.steps.some(({ step }) => step === 'merge')
}

/** Merges and removes the layers that no snapshot and no clone needs. A merge that fails, or is cut short, can be begun again. */
export async function mergeLayers(instance: MachineInstance): Promise<number> {
  let stillUs = 0
  for (const step of instance.recorded.steps.filter((each) => each.step === 'merge'))
    stillUs = Math.max(stillUs, await resumeMerge(instance, step))
  for (let next = await nextFreeChange(instance); next !== undefined; next = await nextFreeChange(instance)) {
    const change = next
    if (change.kind === 'drop') await removeLayer(instance, change, [])
    else stillUs = Math.max(stillUs, await withBlocks(instance, (qmp) => merge(instance, qmp, change)))
  }
  return stillUs
}

/** Removes the layers that nothing is on and no snapshot needs, such as those that a revert leaves. */
export async function dropLayers(instance: MachineInstance): Promise<void> {
  for (let next = nextChange(instance.record); next?.kind === 'drop'; next = nextChange(instance.record))
    await removeLayer(instance, next, [])
}

/**
 * Finishes a merge that an earlier daemon has begun, if it is near its end: the guest may stand still for it. Others are left
 * to {@link mergeLayers}, because they may take long.
 */
export async function settleMerge(instance: MachineInstance, step: StepRecord): Promise<void> {
  const { context } = instance
  const { id, phase } = wordsOf(step)
  if (context.machine !== undefined && phase === 'copy') return
  if (context.machine !== undefined) await resumeMerge(instance, step)
  else await settleFiles(instance, step, id)
}

interface MergeWords {
  readonly id: number
  /** `pivot`: the guest stands still, or is about to. */
  readonly phase: 'copy' | 'pivot'
  readonly isRunning: boolean
}

function stepOf({ recorded }: MachineInstance, { id, phase, isRunning }: MergeWords): StepRecord {
  return recorded.step('merge', ['', `${id}`, phase, isRunning ? 'running' : 'paused'])
}

function wordsOf({ words: [, id, phase, state] }: StepRecord): MergeWords {
  return { id: Number(id), phase: phase === 'pivot' ? phase : 'copy', isRunning: state === 'running' }
}

/** Without QEMU: the layer is gone once its file has another name, and otherwise has all that it had. */
async function settleFiles(instance: MachineInstance, step: StepRecord, id: number): Promise<void> {
  const { context, recorded } = instance
  const isMerged = await exists(mergedPath(context.folder, id))
  if (isMerged) await finish(instance, step, id)
  else await recorded.note({ drop: [step], kind: 'snapshot', text: `layer ${id} was not merged` })
}

async function resumeMerge(instance: MachineInstance, step: StepRecord): Promise<number> {
  const { machine } = instance.context
  const { id, phase, isRunning } = wordsOf(step)
  const layer = instance.record.layers.find((each) => each.id === id)
  const job = machine === undefined ? undefined : await jobOf(machine.qmp, id, instance.ending)
  if (machine === undefined || job === undefined || layer === undefined) {
    if (layer === undefined)
      await instance.recorded.note({ drop: [step], kind: 'snapshot', text: `layer ${id} was merged` })
    else await settleFiles(instance, step, id)
    // The guest may stand still for a pivot that was not begun, or that is done.
    if (phase === 'pivot' && isRunning) await machine?.qmp.execute('cont', {}, instance.ending)
    return 0
  }
  try {
    return await follow(instance, machine.qmp, { layer, step })
  } finally {
    if (phase === 'pivot' && isRunning) await machine.qmp.execute('cont', {}, instance.ending).catch(() => {})
  }
}

/** Writes what a layer has into the one below it, or into the disk's own file. */
async function merge(instance: MachineInstance, qmp: QmpClient, change: LayerChange): Promise<number> {
  const { layer } = change
  const { context, record, recorded } = instance
  const chain = layersUpTo(record.layers, layer.id)
  await checkLayers(context.folder, chain)
  const isRunning = record.current === State.RUNNING
  const step = stepOf(instance, { id: layer.id, phase: 'copy', isRunning })
  const close = await openBlocks(instance, qmp, chain)
  try {
    const text = `layer ${layer.id} is being merged`
    await refuseWrite(instance, change)
    await recorded.commit({ add: [step], kind: 'snapshot', text, frees: true })
    await qmp.execute('block-commit', commitOf(instance, layer), instance.ending).catch(async (error) => {
      // QEMU may have begun the job although its answer was lost.
      if (qmp.isClosed || instance.ending.aborted) throw named(layer, error)
      await recorded.note({ drop: [step], kind: 'snapshot', text: `layer ${layer.id} was not merged` })
      throw named(layer, instance.explain(error, layer.base))
    })
    return await follow(instance, qmp, { layer, step })
  } finally {
    await close()
  }
}

function commitOf({ record }: MachineInstance, layer: Layer) {
  const top = record.layers.find(({ active, base }) => active && base === layer.base)
  const isBelowTop = top !== undefined && layersUpTo(record.layers, top.id).includes(layer) && top !== layer
  const node = layerNode(layer.id)
  const into = layer.parent === 0 ? baseNode(record, layer) : layerNode(layer.parent)
  return {
    ...{ 'job-id': jobName(layer.id), 'base-node': into, 'auto-dismiss': false as const },
    // An image names no other file.
    ...(isBelowTop ? { device: layerNode(top.id), 'top-node': node, 'backing-file': '' } : { device: node }),
  }
}

interface Merge {
  readonly layer: Layer
  readonly step: StepRecord
}

/** Waits for QEMU's job, and has the layer go once all it has is below. Returns for how long the guest stood still. */
async function follow(instance: MachineInstance, qmp: QmpClient, { layer, step }: Merge): Promise<number> {
  const { recorded, context } = instance
  const { id } = layer
  let stillUs = 0
  try {
    const job = await jobDone(qmp, id, instance.ending)
    if (job.status === 'ready') stillUs = await pivot(instance, qmp, { layer, step })
    else {
      throwFailure(layer, job)
      if (wordsOf(step).phase === 'pivot') await markMerged(instance, id)
    }
  } catch (error) {
    // The job may go on, and a later daemon follows it.
    if (qmp.isClosed || instance.ending.aborted) throw named(layer, error)
    const isMerged = await exists(mergedPath(context.folder, id))
    if (!isMerged) {
      await cancel(qmp, id)
      const text = `layer ${id} was not merged: ${messageOf(error)}`
      await recorded.note({ drop: [step], kind: 'snapshot', text })
      throw named(layer, error)
    }
  }
  await finish(instance, step, id, qmp)
  return stillUs
}

/**
 * Has QEMU write below the layer from now on. The guest stands still until the layer's file has another name: before that, the
 * layer and what is below it have the same content. Afterwards nobody reads the layer, whichever process dies meanwhile.
 */
async function pivot(instance: MachineInstance, qmp: QmpClient, { layer, step }: Merge): Promise<number> {
  const { recorded } = instance
  const { id } = layer
  // While a dead daemon's merge was copied, a caller may have paused the guest, or had it run.
  const { isRunning: wasRunning, phase } = wordsOf(step)
  const isRunning = phase === 'copy' ? instance.record.current === State.RUNNING : wasRunning
  const isWritten = layer.active && isRunning
  const next = stepOf(instance, { id, phase: 'pivot', isRunning: isWritten })
  await recorded.commit({ add: [next], kind: 'snapshot', text: `layer ${id} is merged`, frees: true })
  return await whileStill(instance, isWritten, async () => {
    await qmp.execute('job-complete', { id: jobName(id) }, instance.ending)
    const job = await jobDone(qmp, id, instance.ending, ['concluded'])
    throwFailure(layer, job)
    await markMerged(instance, id)
  })
}

/** The guest stands still, and may not write what a later start would not read. */
async function markMerged(instance: MachineInstance, id: number): Promise<void> {
  const { folder } = instance.context
  // An earlier daemon may have died just behind it.
  if (await exists(mergedPath(folder, id))) return
  try {
    await rename(layerPath(folder, id), mergedPath(folder, id))
    await syncFolder(folder)
  } catch (error) {
    const failure = fileError(layerPath(folder, id), error)
    await instance.tearDown(messageOf(failure))
    throw failure
  }
}

/** The record forgets the layer, and its blocks and its file go. */
async function finish(
  instance: MachineInstance,
  step: StepRecord,
  id: number,
  qmp?: QmpClient,
): Promise<void> {
  const { record } = instance
  const layer = record.layers.find((each) => each.id === id)
  if (layer === undefined) throw new AgentError('INTERNAL', `layer ${id}: not in the record`)
  const into = record.layers.find((each) => each.id === layer.parent)
  await removeLayer(instance, { kind: 'merge', layer, into }, [step], async () => {
    if (qmp !== undefined) await closeLayer(instance, id)
  })
}

/** Ends in QEMU what a merge has left: its job keeps the blocks. */
export async function closeLayer({ context, ending }: MachineInstance, id: number): Promise<void> {
  const { machine } = context
  if (machine === undefined) return
  await machine.qmp.execute('job-dismiss', { id: jobName(id) }, ending).catch(() => {})
  await removeNodes(machine.qmp, [{ id }], ending)
}

async function removeLayer(
  instance: MachineInstance,
  change: LayerChange,
  done: readonly StepRecord[],
  close: () => Promise<void> = async () => {},
): Promise<void> {
  const { context, recorded, record } = instance
  const { id } = change.layer
  const file = recorded.step('layer', [`${id}`])
  const set = changed(record, change)
  const text = `layer ${id} was ${change.kind === 'drop' ? 'dropped' : 'merged'}`
  const removal = { set, add: [file], drop: done, kind: 'snapshot', text, frees: true } as const
  // A record that still had a merged layer would miss its file.
  await (change.kind === 'merge' ? recorded.commit(removal) : recorded.note(removal))
  await close()
  const drop = await undoSteps(context, [file])
  await recorded.note({ drop, kind: 'snapshot', text: `the file of layer ${id} was removed`, frees: true })
}

function jobName(id: number): string {
  return `merge-${id}`
}

async function jobOf(qmp: QmpClient, id: number, signal: AbortSignal): Promise<Job | undefined> {
  const jobs = await qmp.execute('query-jobs', {}, signal)
  return jobs.find((job) => job.id === jobName(id))
}

/** Between two questions for a job, when no event tells of it. */
const ASK_MS = 1000

async function jobDone(
  qmp: QmpClient,
  id: number,
  signal: AbortSignal,
  wanted: readonly string[] = ['ready', 'concluded'],
): Promise<Job> {
  for (;;) {
    const limit = AbortSignal.any([signal, AbortSignal.timeout(ASK_MS)])
    const event = qmp.event(
      ({ name, data }) => name === 'JOB_STATUS_CHANGE' && data.id === jobName(id),
      limit,
    )
    event.catch(() => {})
    const job = await jobOf(qmp, id, signal)
    if (job === undefined) throw new AgentError('INTERNAL', 'QEMU has no such job any more')
    if (wanted.includes(job.status)) return job
    await event.catch(() => signal.throwIfAborted())
  }
}

/** What was written below is not lost: the layer still has it, too. */
async function cancel(qmp: QmpClient, id: number): Promise<void> {
  const limit = AbortSignal.timeout(CANCEL_MS)
  await qmp.execute('job-cancel', { id: jobName(id) }, limit).catch(() => {})
  await jobDone(qmp, id, limit, ['concluded']).catch(() => {})
  await qmp.execute('job-dismiss', { id: jobName(id) }, limit).catch(() => {})
}

const CANCEL_MS = 10_000

function throwFailure(layer: Layer, { error }: Job): void {
  if (error === undefined) return
  const isFull = /No space left|quota exceeded|File too large/i.test(error)
  throw named(layer, new AgentError(isFull ? 'RESOURCE_EXHAUSTED' : 'FAILED_PRECONDITION', error))
}

function named({ backend, id }: Layer, error: unknown): unknown {
  const prefix = `${pathOf('backends', backend)}: layer ${id}: not merged: `
  if (!(error instanceof AgentError) || error.message.startsWith(prefix)) return error
  const code = error.code === 'INTERNAL' ? 'FAILED_PRECONDITION' : error.code
  return new AgentError(code, `${prefix}${error.message}`, { cause: error })
}

async function exists(path: string): Promise<boolean> {
  return await stat(path).then(
    () => true,
    () => false,
  )
}
