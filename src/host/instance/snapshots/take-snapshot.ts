import { AgentError, messageOf } from '../../../base/errors.ts'
import {
  Snapshot_Consistency as Consistency,
  type Layer,
  type Snapshot,
  SnapshotRequest,
  State,
} from '../../../gen/microvm/instance/v1/instance.ts'
import type { StepRecord } from '../../../gen/microvm/instance/v1/records.ts'
import { quiesce, thaw } from '../ask-agent.ts'
import { refuseOthersBases, refuseWritten } from '../devices/disk-in-use.ts'
import type { MachineInstance } from '../instance.ts'
import type { Caller } from '../instances.ts'
import { refuseLease } from '../leases/check-lease.ts'
import type { KeepRequest, KeptMemory, Moves } from '../moves.ts'
import { checkLayers } from './check-layers.ts'
import { areOnTop, closeAndThrow, openLayers, removeNodes, whileStill, writeToLayers } from './layer-nodes.ts'
import type { Layers } from './layers.ts'
import { isMemoryKept, memoryFolder } from './memory-folder.ts'
import { makeOverlays, removeFiles } from './overlay-file.ts'
import {
  backendsOf,
  type Planned,
  type Provide,
  plannedOf,
  planOf,
  providedOf,
  stepOf,
} from './plan-snapshot.ts'

/** How long a guest may stand at rest for a snapshot. */
const QUIESCE_MS = 30_000

interface SnapshotOptions {
  readonly caller: Pick<Caller, 'inStep' | 'isRepeated'>
  /** What a start would change in the record. */
  readonly provide: Provide
  /** Without them no memory is kept. */
  readonly moves: Pick<Moves, 'keep'> | undefined
}

/** Keeps the present content of disks, of all at one moment. To be called in a change, when no other one is unfinished. */
export async function takeSnapshot(
  instance: MachineInstance,
  request: SnapshotRequest,
  { caller, moves, provide }: SnapshotOptions,
): Promise<Snapshot> {
  const { record } = instance
  const { name } = request
  const known = record.snapshots.find((each) => each.name === name)
  if (known !== undefined && caller.isRepeated === true) return known
  if (known !== undefined)
    throw new AgentError('ALREADY_EXISTS', `instance ${instance.key}: snapshot ${name}: exists already`)
  if (request.memory) instance.machine()
  const planned = await planOf(instance, request, await providedOf(instance, provide))
  if (!request.memory) return await takeOfDisks(instance, request, planned)
  if (moves === undefined) throw new AgentError('UNIMPLEMENTED', 'memory: no machines are saved here')
  return await takeWithMemory(instance, request, { caller, moves, planned })
}

async function takeOfDisks(
  instance: MachineInstance,
  { name, quiesce: isAtRest }: SnapshotRequest,
  planned: Planned,
): Promise<Snapshot> {
  const { recorded, context } = instance
  const step = stepOf(instance, planned, isAtRest)
  const kept = { stillUs: 0n, waitingUs: 0n, wasAtRest: false }
  try {
    if (planned.state === 'stopped') refuseWritten(backendsOf(planned), instance)
    await begin(instance, step, planned)
    if (isAtRest) await rest(instance, planned)
    try {
      if (context.machine !== undefined) kept.stillUs = await putOnTop(instance, planned.added)
    } finally {
      if (isAtRest) kept.wasAtRest = await endRest(instance)
    }
  } catch (error) {
    await removeFiles(context.folder, planned.added)
    const text = `snapshot ${name} was not taken: ${messageOf(error)}`
    await recorded.note({ drop: [step], kind: 'snapshot', text, frees: true })
    throw error
  }
  return await keepSnapshot(instance, step, kept)
}

/** Writes the snapshot down, and makes the files of its layers. */
async function begin(instance: MachineInstance, step: StepRecord, planned: Planned): Promise<void> {
  const { context, recorded } = instance
  refuseOthersBases(backendsOf(planned), instance)
  const text = `snapshot ${planned.snapshot.name} is being taken`
  await recorded.commit({ set: { lastLayer: planned.lastLayer }, add: [step], kind: 'snapshot', text })
  await makeOverlays(context.folder, planned.added)
}

async function putOnTop(instance: MachineInstance, added: readonly Layer[]): Promise<bigint> {
  try {
    await openLayers(instance, added)
    const isRunning = instance.record.current === State.RUNNING
    return BigInt(await whileStill(instance, isRunning, () => writeToLayers(instance, added)))
  } catch (error) {
    return await closeAndThrow(instance, added, error)
  }
}

interface WithMemory extends Pick<SnapshotOptions, 'caller'> {
  readonly moves: Pick<Moves, 'keep'>
  readonly planned: Planned
}

async function takeWithMemory(
  instance: MachineInstance,
  { name, quiesce: isAtRest, withoutAgent }: SnapshotRequest,
  options: WithMemory,
): Promise<Snapshot> {
  const folder = memoryFolder(instance.context.folder, name)
  const request = { name, folder, quiesce: isAtRest, withoutAgent, isWhole: false }
  const { kept, step } = await keepWithLayers(instance, request, options)
  return await keepSnapshot(instance, step, kept)
}

/**
 * Saves a machine that goes on, for clones that are made at once: its guest writes to new layers from then on. To be called in a
 * change, when no other one of layers is unfinished.
 */
export async function saveForClones(
  instance: MachineInstance,
  request: Pick<KeepRequest, 'name' | 'folder' | 'withoutAgent'>,
  { caller, moves, provide }: Pick<SnapshotOptions, 'caller' | 'provide'> & Pick<WithMemory, 'moves'>,
): Promise<void> {
  instance.machine()
  refuseLease(instance)
  const { name } = request
  const wanted = SnapshotRequest.fromPartial({ key: instance.key, name, memory: true })
  const planned = await planOf(instance, wanted, await providedOf(instance, provide))
  const whole = { ...request, quiesce: false, isWhole: true }
  const { step } = await keepWithLayers(instance, whole, { caller, moves, planned })
  await keepLayers(instance, step, 'the guest writes to new layers, for its clones have those before')
}

/** Keeps the memory of a machine. What goes wrong is undone; layers to which the guest has begun to write stay, to be merged. */
async function keepWithLayers(
  instance: MachineInstance,
  request: Omit<KeepRequest, 'layers'>,
  { caller, moves, planned }: WithMemory,
): Promise<{ readonly kept: KeptMemory; readonly step: StepRecord }> {
  const { added } = planned
  const step = stepOf(instance, planned)
  const reached = { isBegun: false, isOnTop: false }
  const layers = {
    backends: new Set(added.map(({ backend }) => backend)),
    make: async () => {
      reached.isBegun = true
      await begin(instance, step, planned)
      await openLayers(instance, added)
    },
    putOnTop: async () => {
      await writeToLayers(instance, added)
      reached.isOnTop = true
    },
  }
  try {
    return { kept: await moves.keep(instance, { ...request, layers }, caller), step }
  } catch (error) {
    // What the guest has written since is in the layers.
    if (reached.isOnTop) await keepLayers(instance, step)
    else if (reached.isBegun) await abandon(instance, step)
    throw error
  }
}

/** Has the guest write down what it holds in memory, and stop writing. */
async function rest(instance: MachineInstance, { state }: Planned): Promise<void> {
  if (state !== 'running')
    throw new AgentError('FAILED_PRECONDITION', `quiesce: the machine is ${state}, want it running`)
  await quiesce(instance, QUIESCE_MS).catch(async (error) => {
    // A guest whose answer is lost may be at rest; one that refuses may be so for others.
    if (error?.code !== 'FAILED_PRECONDITION') await endRest(instance)
    throw error instanceof AgentError ? new AgentError(error.code, `quiesce: ${error.message}`) : error
  })
}

/** Returns whether the guest was at rest until now. It ends the rest by itself where it cannot be told. */
async function endRest(instance: MachineInstance): Promise<boolean> {
  return await thaw(instance).catch((error) => {
    instance.context.log.warn('guest not thawed', { error: messageOf(error) })
    return false
  })
}

/** Finishes what an earlier daemon has begun. To be called in a change. */
export async function settleSnapshot(instance: MachineInstance, step: StepRecord): Promise<void> {
  const { context, recorded } = instance
  const { added, isAtRest, snapshot, state } = plannedOf(instance, step)
  const { layers, snapshots } = recorded.record
  const isRecorded =
    added.length === 0
      ? snapshots.some(({ name }) => name === snapshot.name)
      : added.every(({ id }) => layers.some((layer) => layer.id === id))
  if (isRecorded) return await recorded.note({ drop: [step], kind: 'snapshot', text: 'a snapshot was taken' })
  const { machine } = context
  // What the guest has written is in the layers by now, or nothing is. Without QEMU, layers without content change nothing.
  const isTaken =
    machine === undefined
      ? await checkLayers(context.folder, added).then(
          () => true,
          () => false,
        )
      : await areOnTop(machine.qmp, added, instance.ending)
  const isWhole = !snapshot.memory || (await isMemoryKept(context.folder, snapshot.name))
  if (!isTaken) await abandon(instance, step)
  else if (isWhole) await keepSnapshot(instance, step, { stillUs: 0n, waitingUs: 0n, wasAtRest: false })
  else await keepLayers(instance, step)
  if (state === 'running') await machine?.qmp.execute('cont', {}, instance.ending)
  if (isAtRest && machine !== undefined) await endRest(instance)
}

/** Removes layers to which nothing writes. */
async function abandon(instance: MachineInstance, step: StepRecord): Promise<void> {
  const { context, recorded } = instance
  const { added } = plannedOf(instance, step)
  if (context.machine !== undefined) await removeNodes(context.machine.qmp, added, instance.ending)
  await removeFiles(context.folder, added)
  await recorded.note({ drop: [step], kind: 'snapshot', text: 'a snapshot was not taken', frees: true })
}

/** Keeps the layers to which the guest writes, without the snapshot below them: they can be merged. */
async function keepLayers(
  instance: MachineInstance,
  step: StepRecord,
  text = 'a snapshot was not taken',
): Promise<void> {
  const { recorded, record } = instance
  const { added } = plannedOf(instance, step)
  const set = { layers: [...below(record.layers, added), ...added] }
  await recorded.note({ set, drop: [step], kind: 'snapshot', text })
}

/** Writes down that the layers are the ones that the guest writes to. */
async function keepSnapshot(
  instance: MachineInstance,
  step: StepRecord,
  { stillUs, waitingUs, wasAtRest }: KeptMemory,
): Promise<Snapshot> {
  const { recorded, record } = instance
  const { added, snapshot: planned } = plannedOf(instance, step)
  const consistency = wasAtRest ? Consistency.FILE_SYSTEM : planned.consistency
  const snapshot = { ...planned, consistency, stillUs, waitingUs }
  const set: Layers = {
    layers: [...below(record.layers, added), ...added],
    snapshots: [...record.snapshots, snapshot],
  }
  const text = `snapshot ${snapshot.name} was taken`
  await recorded.note({ set, drop: [step], kind: 'snapshot', text })
  return snapshot
}

/** The layers that are below others now. */
export function below(layers: readonly Layer[], added: readonly Layer[]): Layer[] {
  const bases = added.map(({ base }) => base)
  return layers.map((layer) => ({ ...layer, active: layer.active && !bases.includes(layer.base) }))
}
