import { AgentError, messageOf } from '../../../base/errors.ts'
import { undoAndThrow } from '../../../base/undo.ts'
import {
  type Backend,
  Snapshot_Consistency as Consistency,
  File_Access,
  type Layer,
  type Snapshot,
  type SnapshotRequest,
  type Specification,
  State,
} from '../../../gen/microvm/instance/v1/instance.ts'
import { InstanceRecord, type StepRecord } from '../../../gen/microvm/instance/v1/records.ts'
import { fileNodeOf, keyOf, layerParts } from '../../qemu/device-parts.ts'
import type { Backends } from '../../qemu/machine/as-spec.ts'
import { plugCommand } from '../../qemu/parts.ts'
import type { QmpClient } from '../../qemu/qmp/client.ts'
import { pathOf } from '../../spec/component-path.ts'
import { specKey } from '../../spec/spec-key.ts'
import { quiesce, thaw } from '../ask-agent.ts'
import { closeUnused } from '../devices/descriptor-sets.ts'
import { refuseOthersBases, refuseWritten } from '../devices/disk-in-use.ts'
import { openerOf } from '../devices/parts-host-of.ts'
import { refused } from '../devices/plug.ts'
import { machinesOf } from '../documents/document-record.ts'
import type { MachineInstance } from '../instance.ts'
import type { Caller } from '../instances.ts'
import { checkLayers, sizeOfBase } from './check-layers.ts'
import { diskNode, type Layers, layerNode, layerPath, layersOfBackend } from './layers.ts'
import { makeOverlays, removeFiles } from './overlay-file.ts'

/** Of an instance. */
const MAX_SNAPSHOTS = 64
/** On top of each other, each an open file and a look-up for what is not in it. */
const MAX_DEPTH = 32
/** QEMU takes up to two seconds to open each of these, all of them before it greets. */
const MAX_ENCRYPTED_DEPTH = 8
/** Of the record with the configurations of all its snapshots. */
const MAX_RECORD_BYTES = 4 * 1024 * 1024

/** How long a guest may stand at rest for a snapshot. */
const QUIESCE_MS = 30_000

interface SnapshotOptions extends Pick<Caller, 'isRepeated'> {
  /** What a start would change in the record. */
  readonly provide: Provide
}

export type Provide = (
  instance: MachineInstance,
  record: Readonly<InstanceRecord>,
) => Promise<Partial<InstanceRecord>>

/** Keeps the present content of disks, of all at one moment. To be called in a change, when no other one is unfinished. */
export async function takeSnapshot(
  instance: MachineInstance,
  request: SnapshotRequest,
  { isRepeated = false, provide }: SnapshotOptions,
): Promise<Snapshot> {
  const { recorded, context, record } = instance
  const { name } = request
  const known = record.snapshots.find((each) => each.name === name)
  if (known !== undefined && isRepeated) return known
  if (known !== undefined)
    throw new AgentError('ALREADY_EXISTS', `instance ${instance.key}: snapshot ${name}: exists already`)
  const planned = await planOf(instance, request, await providedOf(instance, provide))
  const step = stepOf(instance, planned)
  if (request.quiesce) await rest(instance, planned)
  let [stillUs, wasAtRest] = [0, false]
  try {
    const text = `snapshot ${name} is being taken`
    const set = { lastLayer: planned.lastLayer }
    refuseOthersBases(backendsOf(planned), instance)
    if (planned.state === 'stopped') refuseWritten(backendsOf(planned), instance)
    await recorded.commit({ set, add: [step], kind: 'snapshot', text })
    await makeOverlays(context.folder, planned.added)
    if (context.machine !== undefined) stillUs = await putOnTop(instance, planned.added)
  } catch (error) {
    await removeFiles(context.folder, planned.added)
    const text = `snapshot ${name} was not taken: ${messageOf(error)}`
    await recorded.note({ drop: [step], kind: 'snapshot', text, frees: true })
    throw error
  } finally {
    if (request.quiesce) wasAtRest = await endRest(instance)
  }
  return await keepSnapshot(instance, step, { stillUs, wasAtRest })
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
  const { added, state } = plannedOf(instance, step)
  const isRecorded = added.every(({ id }) => recorded.record.layers.some((layer) => layer.id === id))
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
  if (isTaken) await keepSnapshot(instance, step, { stillUs: 0, wasAtRest: false })
  else {
    if (machine !== undefined) await removeNodes(machine.qmp, added, instance.ending)
    await removeFiles(context.folder, added)
    await recorded.note({ drop: [step], kind: 'snapshot', text: 'a snapshot was not taken', frees: true })
  }
  if (state === 'running') await machine?.qmp.execute('cont', {}, instance.ending)
}

/** Those of the disks. */
function backendsOf({ snapshot: { disks, specification } }: Planned): Readonly<Record<string, Backend>> {
  const keys = disks.map(({ backend }) => backend)
  return Object.fromEntries(
    Object.entries(specification?.backends ?? {}).filter(([key]) => keys.includes(key)),
  )
}

interface Planned {
  readonly snapshot: Snapshot
  readonly added: readonly Layer[]
  readonly state: 'running' | 'paused' | 'stopped'
  readonly lastLayer: number
}

/** The record with what is behind the disks, which that of a stopped instance of a document does not have. */
async function providedOf(instance: MachineInstance, provide: Provide): Promise<Readonly<InstanceRecord>> {
  const { record } = instance
  return record.document?.backends === '' ? { ...record, ...(await provide(instance, record)) } : record
}

async function planOf(
  instance: MachineInstance,
  request: SnapshotRequest,
  record: Readonly<InstanceRecord>,
): Promise<Planned> {
  const { context } = instance
  const { specification } = record
  if (specification === undefined) throw new AgentError('FAILED_PRECONDITION', 'specification: not known yet')
  refuseServed(record, request.disks)
  const keys = disksOf(specification, request.disks, record.leaving)
  const { machine } = context
  checkRoom(instance, specification)
  const sizes = machine === undefined ? undefined : await nodeSizes(machine.qmp, instance.ending)
  const added: Layer[] = []
  const disks: Snapshot['disks'] = []
  for (const device of keys) {
    const { backend = '' } = specification.devices[device] ?? {}
    const { encryption, path: base = '' } = specification.backends[backend]?.file ?? {}
    const present = layersOfBackend(record, backend)
    checkDepth(device, present.length, encryption !== undefined)
    await checkLayers(context.folder, present)
    const layer = present.at(-1)?.id ?? 0
    const qcow2Base = present[0]?.qcow2Base ?? isImage(record, backend)
    const file = { base, qcow2Base, secret: encryption?.secret ?? '' }
    const size =
      sizes?.get(diskNode(record, backend)) ?? present.at(-1)?.sizeBytes ?? (await sizeOfBase(file))
    disks.push({ device, backend, layer })
    const id = record.lastLayer + 1 + added.length
    const own = { ...file, backend, sizeBytes: BigInt(size) }
    added.push({ id, parent: layer, ...own, active: true, usedBytes: 0n })
  }
  const state = machine === undefined ? 'stopped' : record.current === State.RUNNING ? 'running' : 'paused'
  const consistency = machine === undefined ? Consistency.STOPPED_MACHINE : Consistency.CRASH
  const createdMs = BigInt(Date.now())
  return {
    snapshot: {
      ...{ name: request.name, createdMs, consistency, stillUs: 0n, disks, memory: false },
      ...{ specification, machine: record.document?.saved ?? '' },
    },
    added,
    state,
    lastLayer: record.lastLayer + added.length,
  }
}

function refuseServed(record: Readonly<InstanceRecord>, disks: readonly string[]): void {
  const { devices = {} } = machinesOf(record)?.saved ?? {}
  const backends: Backends = JSON.parse(record.document?.backends || '{}')
  for (const key of disks) {
    if (backends[devices[key]?.backend ?? '']?.kind !== 'network-disk') continue
    const text = `${pathOf('devices', key)}: a server has it, and may have snapshots of its own`
    throw new AgentError('FAILED_PRECONDITION', text)
  }
}

/** The keys of the disks that are asked for. Throws naming the one of which no snapshot can be taken. */
function disksOf(
  { devices, backends }: Specification,
  wanted: readonly string[],
  leaving: readonly string[],
): readonly string[] {
  const faultOf = (
    key: string,
  ): readonly [code: 'NOT_FOUND' | 'FAILED_PRECONDITION', fault: string] | undefined => {
    const device = devices[key]
    const { file } = backends[device?.backend ?? ''] ?? {}
    if (device?.disk === undefined) return ['NOT_FOUND', 'no disk']
    if (device.disk.noSnapshot) return ['FAILED_PRECONDITION', 'snapshots leave it out (no_snapshot)']
    if (file?.access !== File_Access.READ_WRITE)
      return ['FAILED_PRECONDITION', 'the guest cannot write to a file of its own, want access READ_WRITE']
    return leaving.includes(key) ? ['FAILED_PRECONDITION', 'leaving the machine'] : undefined
  }
  for (const key of wanted) {
    const [code, fault] = faultOf(key) ?? []
    if (code !== undefined) throw new AgentError(code, `${pathOf('devices', key)}: ${fault}`)
  }
  const all = Object.keys(devices).filter((key) => faultOf(key) === undefined)
  const keys = wanted.length === 0 ? all : [...new Set(wanted)]
  if (keys.length > 0) return keys
  throw new AgentError('FAILED_PRECONDITION', 'disks: the machine has none of which snapshots are taken')
}

/** Whether a backend's file is a qcow2 image, as the catalogue has it. */
export function isImage({ document }: Pick<InstanceRecord, 'document'>, backend: string): boolean {
  const backends: Backends = JSON.parse(document?.backends || '{}')
  const found = backends[specKey(backend)]
  return found?.kind === 'file' && found.format === 'qcow2'
}

function checkRoom({ record }: MachineInstance, specification: Specification): void {
  if (record.snapshots.length >= MAX_SNAPSHOTS)
    throw exhausted(`${record.snapshots.length} snapshots, want fewer: RemoveSnapshot merges them`)
  const bytes = InstanceRecord.encode({ ...record, specification }).finish().length
  if (2 * bytes > MAX_RECORD_BYTES)
    throw exhausted(`${bytes} bytes of configurations of snapshots, want less: RemoveSnapshot merges them`)
}

/** Throws RESOURCE_EXHAUSTED when one more layer would be too many. */
export function checkDepth(device: string, layers: number, isEncrypted: boolean): void {
  if (layers >= (isEncrypted ? MAX_ENCRYPTED_DEPTH : MAX_DEPTH))
    throw exhausted(`${pathOf('devices', device)}: ${layers} layers of snapshots, want fewer`)
}

function exhausted(text: string): AgentError {
  return new AgentError('RESOURCE_EXHAUSTED', text)
}

/** Words are an empty one, the state of the machine, and the rest of the plan as a record. */
function stepOf({ recorded }: MachineInstance, { state, snapshot, added }: Planned): StepRecord {
  const plan = { ...InstanceRecord.create(), snapshots: [snapshot], layers: [...added] }
  const text = Buffer.from(InstanceRecord.encode(plan).finish()).toString('base64')
  return recorded.step('snapshot', ['', state, text])
}

function plannedOf({ key }: MachineInstance, { words }: StepRecord): Omit<Planned, 'lastLayer'> {
  const [, state = '', text = ''] = words
  const { snapshots, layers } = InstanceRecord.decode(Buffer.from(text, 'base64'))
  const [snapshot] = snapshots
  if (snapshot === undefined) throw new AgentError('INTERNAL', `instance ${key}: a snapshot without a name`)
  return { snapshot, added: layers, state: state === 'running' || state === 'paused' ? state : 'stopped' }
}

/** Writes down that the layers are the ones that the guest writes to. */
async function keepSnapshot(
  instance: MachineInstance,
  step: StepRecord,
  { stillUs, wasAtRest }: { readonly stillUs: number; readonly wasAtRest: boolean },
): Promise<Snapshot> {
  const { recorded, record } = instance
  const { added, snapshot: planned } = plannedOf(instance, step)
  const consistency = wasAtRest ? Consistency.FILE_SYSTEM : planned.consistency
  const snapshot = { ...planned, consistency, stillUs: BigInt(stillUs) }
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

/** Has QEMU write to the layers from one moment on, in which the guest stands still. Returns for how long, in microseconds. */
async function putOnTop(instance: MachineInstance, added: readonly Layer[]): Promise<number> {
  const { context, record } = instance
  const { qmp } = instance.machine()
  const signal = instance.ending
  const opener = openerOf(instance)
  const parts = added.flatMap(({ backend, id, secret }) => {
    const file = { node: layerNode(id), path: layerPath(context.folder, id) }
    const key = secret === '' ? undefined : keyOf(specKey(backend))
    return layerParts(file, { backing: null, isTop: true, opener, key })
  })
  const actions = added.map(({ id, backend }) => ({
    type: 'blockdev-snapshot' as const,
    data: { node: diskNode(record, backend), overlay: layerNode(id) },
  }))
  try {
    await opener?.open(qmp, signal)
    for (const part of parts) await qmp.command(plugCommand(part), signal)
    const isRunning = record.current === State.RUNNING
    return await whileStill(instance, isRunning, () => qmp.execute('transaction', { actions }, signal))
  } catch (error) {
    return await undoAndThrow(refused('disks', error), async (limit) => {
      await removeNodes(qmp, added, limit)
      await opener?.discard(qmp, limit)
    })
  }
}

/** Runs `work` while the guest stands still, and returns for how long it did, in microseconds. */
export async function whileStill(
  instance: MachineInstance,
  isRunning: boolean,
  work: () => Promise<unknown>,
): Promise<number> {
  const { qmp } = instance.machine()
  if (!isRunning) {
    await work()
    return 0
  }
  const begun = process.hrtime.bigint()
  await qmp.execute('stop', {}, instance.ending)
  try {
    await work()
  } catch (error) {
    await qmp.execute('cont', {}, instance.ending).catch(() => {})
    throw error
  }
  // The work is done: what comes between ends the machine, and is told then.
  await qmp
    .execute('cont', {}, instance.ending)
    .catch((error) => instance.context.log.warn('guest not continued', { error: messageOf(error) }))
  return Number((process.hrtime.bigint() - begun) / 1000n)
}

/** Whether a disk uses the layers: then they have something below them. */
async function areOnTop(qmp: QmpClient, added: readonly Layer[], signal: AbortSignal): Promise<boolean> {
  const { nodes, edges } = await qmp.execute('x-debug-query-block-graph', {}, signal)
  const ids = added.map(({ id }) => nodes.find(({ name }) => name === layerNode(id))?.id)
  return ids.every(
    (id) => id !== undefined && edges.some((edge) => edge.parent === id && edge.name === 'backing'),
  )
}

/** Removes the blocks of layers from QEMU, the topmost first. What is missing or in use stays as it is. */
export async function removeNodes(
  qmp: QmpClient,
  layers: readonly Pick<Layer, 'id'>[],
  signal: AbortSignal,
): Promise<void> {
  for (const { id } of layers.toReversed())
    for (const name of [layerNode(id), fileNodeOf(layerNode(id))])
      await qmp.execute('blockdev-del', { 'node-name': name }, signal).catch(() => {})
  await closeUnused(qmp, signal).catch(() => {})
}

async function nodeSizes(qmp: QmpClient, signal: AbortSignal): Promise<ReadonlyMap<string, number>> {
  const nodes = await qmp.execute('query-named-block-nodes', { flat: true }, signal)
  return new Map(nodes.map((node) => [node['node-name'], node.image['virtual-size']]))
}
