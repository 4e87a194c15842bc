import { AgentError } from '../../../base/errors.ts'
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
import type { Backends } from '../../qemu/machine/as-spec.ts'
import { pathOf } from '../../spec/component-path.ts'
import { specKey } from '../../spec/spec-key.ts'
import { machinesOf } from '../documents/document-record.ts'
import type { MachineInstance } from '../instance.ts'
import { checkLayers, sizeOfBase } from './check-layers.ts'
import { nodeSizes } from './layer-nodes.ts'
import { diskNode, layersOfBackend } from './layers.ts'

/** Of an instance. */
const MAX_SNAPSHOTS = 64
/** On top of each other, each an open file and a look-up for what is not in it. */
const MAX_DEPTH = 32
/** QEMU takes up to two seconds to open each of these, all of them before it greets. */
const MAX_ENCRYPTED_DEPTH = 8
/** Of the record with the configurations of all its snapshots. */
const MAX_RECORD_BYTES = 4 * 1024 * 1024

export type Provide = (
  instance: MachineInstance,
  record: Readonly<InstanceRecord>,
) => Promise<Partial<InstanceRecord>>

/** Those of the disks. */
export function backendsOf({
  snapshot: { disks, specification },
}: Planned): Readonly<Record<string, Backend>> {
  const keys = disks.map(({ backend }) => backend)
  return Object.fromEntries(
    Object.entries(specification?.backends ?? {}).filter(([key]) => keys.includes(key)),
  )
}

/** What a snapshot is going to be. */
export interface Planned {
  readonly snapshot: Snapshot
  readonly added: readonly Layer[]
  readonly state: 'running' | 'paused' | 'stopped'
  readonly lastLayer: number
}

/** The record with what is behind the disks, which that of a stopped instance of a document does not have. */
export async function providedOf(
  instance: MachineInstance,
  provide: Provide,
): Promise<Readonly<InstanceRecord>> {
  const { record } = instance
  return record.document?.backends === '' ? { ...record, ...(await provide(instance, record)) } : record
}

export async function planOf(
  instance: MachineInstance,
  request: SnapshotRequest,
  record: Readonly<InstanceRecord>,
): Promise<Planned> {
  const { context } = instance
  const { specification } = record
  if (specification === undefined) throw new AgentError('FAILED_PRECONDITION', 'specification: not known yet')
  refuseServed(record, request.disks)
  const keys = request.memory
    ? disksWithMemory(record, specification, request.disks)
    : disksOf(specification, request.disks, record.leaving)
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
      ...{ name: request.name, createdMs, consistency, stillUs: 0n, disks, memory: request.memory },
      ...{ memoryBytes: 0n, waitingUs: 0n },
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

/** All to which the guest writes: its memory is of no use with others than those of its moment. */
function disksWithMemory(
  record: Readonly<InstanceRecord>,
  { devices, backends }: Specification,
  wanted: readonly string[],
): readonly string[] {
  if (wanted.length > 0)
    throw new AgentError('INVALID_ARGUMENT', 'disks: with memory all are kept, want none')
  refuseServed(record, Object.keys(devices))
  const written = Object.entries(devices).filter(
    ([, { backend }]) => backends[backend]?.file?.access === File_Access.READ_WRITE,
  )
  for (const [key, { disk }] of written) {
    const fault = disk === undefined ? 'no disk, so that' : disk.noSnapshot ? 'with no_snapshot,' : undefined
    if (fault === undefined) continue
    const text = `${pathOf('devices', key)}: ${fault} its content cannot be kept with the memory`
    throw new AgentError('FAILED_PRECONDITION', text)
  }
  return written.map(([key]) => key)
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

/**
 * Words are an empty one, the state of the machine, and the rest of the plan as a record. With `isAtRest` there is one more: the guest
 * may be at rest as long as there is the step.
 */
export function stepOf(
  { recorded }: MachineInstance,
  { state, snapshot, added }: Planned,
  isAtRest = false,
): StepRecord {
  const plan = { ...InstanceRecord.create(), snapshots: [snapshot], layers: [...added] }
  const text = Buffer.from(InstanceRecord.encode(plan).finish()).toString('base64')
  return recorded.step('snapshot', ['', state, text, ...(isAtRest ? [REST] : [])])
}

const REST = 'rest'

export function plannedOf(
  { key }: MachineInstance,
  { words }: StepRecord,
): Omit<Planned, 'lastLayer'> & { readonly isAtRest: boolean } {
  const [, state = '', text = '', rest] = words
  const { snapshots, layers } = InstanceRecord.decode(Buffer.from(text, 'base64'))
  const [snapshot] = snapshots
  if (snapshot === undefined) throw new AgentError('INTERNAL', `instance ${key}: a snapshot without a name`)
  return {
    ...{ snapshot, added: layers, isAtRest: rest === REST },
    state: state === 'running' || state === 'paused' ? state : 'stopped',
  }
}
