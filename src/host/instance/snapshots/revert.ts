import { AgentError } from '../../../base/errors.ts'
import { type Layer, type Snapshot, State } from '../../../gen/microvm/instance/v1/instance.ts'
import {
  type DocumentRecord,
  InstanceRecord,
  type StepRecord,
} from '../../../gen/microvm/instance/v1/records.ts'
import { pathOf } from '../../spec/component-path.ts'
import type { MachineInstance } from '../instance.ts'
import type { Caller, OwnerCheck } from '../instances.ts'
import { checkFiles } from '../machine/check-files.ts'
import { RUNS, undoSteps } from '../machine/steps.ts'
import type { KeptContent, Moves } from '../moves.ts'
import { checkBase, checkLayers, sizeOfBase } from './check-layers.ts'
import { baseOf, layersUpTo } from './layers.ts'
import { memoryFolder } from './memory-folder.ts'
import { makeOverlays } from './overlay-file.ts'
import type { Provide } from './plan-snapshot.ts'
import { below } from './take-snapshot.ts'

/** How many reverts and resets with an idempotency key a record names. */
const KEPT_CALLS = 16

interface RevertOptions {
  readonly caller: Pick<Caller, 'callKey' | 'inStep' | 'isRepeated'>
  readonly checkOwner: OwnerCheck
  readonly provide: Provide
  readonly moves: Pick<Moves, 'openKept' | 'revert' | 'repair'> | undefined
}

/**
 * Gives the disks the content and the instance the configuration of a snapshot, on new layers: the snapshot stays as it is. With
 * memory, the machine goes on from there.
 * A call with an idempotency key does so once. To be called in a change, when no other one is unfinished.
 */
export async function revert(
  instance: MachineInstance,
  name: string,
  { caller, checkOwner, moves, provide }: RevertOptions,
): Promise<void> {
  const { context, record, recorded } = instance
  const { callKey, isRepeated = false } = caller
  if (isRepeated && callKey !== undefined && record.resets.includes(callKey))
    return await moves?.repair(instance)
  const snapshot = snapshotOf(instance, name)
  if (snapshot.specification === undefined)
    throw new AgentError('INTERNAL', `snapshot ${name}: no configuration`)
  if (record.current !== State.STOPPED)
    throw new AgentError('FAILED_PRECONDITION', `instance ${instance.key}: not stopped, want it stopped`)
  const kept = await keptOf(instance, snapshot, moves)
  // The guest of a kept memory sees a new id.
  const { generationId = record.generationId, specification = snapshot.specification } = kept?.record ?? {}
  const saved = kept === undefined ? savedOf(record.document, snapshot) : documentOf(kept.record)
  // The names of a machine are looked up as at each start, which refuses those that the tenant may not use any more.
  if (saved.document !== undefined) await provide(instance, { ...record, ...saved })
  else await checkOwner(record.properties?.tenant ?? '', specification)
  await checkFiles(specification)
  refuseLost(record.layers, snapshot)
  const added = await layersOn(instance, snapshot)
  const steps = added.map(({ id }) => recorded.step('layer', [`${id}`]))
  const set = { lastLayer: record.lastLayer + added.length }
  const add = [...steps, ...(kept === undefined ? [] : [revertStep(instance, kept)])]
  await recorded.commit({ set, add, kind: 'snapshot', text: `the disks go back to snapshot ${name}` })
  try {
    await makeOverlays(context.folder, added)
    const resets = callKey === undefined ? record.resets : [...record.resets, callKey].slice(-KEPT_CALLS)
    const layers = [...below(record.layers, added), ...added]
    const restored = { specification, layers, resets, generationId, ...saved }
    const text = `snapshot ${name} was restored`
    await recorded.commit({ set: restored, drop: steps, kind: 'snapshot', text })
    if (kept !== undefined) await moves?.revert(instance, kept, caller)
  } catch (error) {
    if (kept !== undefined) await settleRevert(instance)
    const drop = await undoSteps(
      context,
      recorded.steps.filter(({ step }) => step === 'layer'),
    )
    const text = `snapshot ${name} was not restored`
    if (drop.length > 0) await recorded.note({ drop, kind: 'snapshot', text, frees: true })
    throw error
  }
}

/** What was kept with a snapshot besides its disks, checked; undefined where there is nothing. */
async function keptOf(
  instance: MachineInstance,
  { memory, name }: Snapshot,
  moves: RevertOptions['moves'],
): Promise<KeptContent | undefined> {
  if (!memory) return undefined
  if (moves === undefined) throw new AgentError('UNIMPLEMENTED', 'memory: no machines are saved here')
  return await moves.openKept(memoryFolder(instance.context.folder, name))
}

function documentOf({ document }: KeptContent['record']): { readonly document?: DocumentRecord } {
  return document === undefined ? {} : { document }
}

/**
 * Words are an empty one, the folder of the memory, its id, the instance's key, RUNS once the guest may have run, and until then the
 * record that there was before, in base64.
 */
function revertStep({ key, record, recorded }: MachineInstance, { folder, id }: KeptContent): StepRecord {
  const { document, generationId, resets, specification } = record
  const own = { document, generationId, resets, specification }
  const before = InstanceRecord.fromPartial({ ...own, layers: [...record.layers] })
  const text = Buffer.from(InstanceRecord.encode(before).finish()).toString('base64')
  return recorded.step('revert', ['', folder, id, key, '', text])
}

/**
 * Takes back a revert with memory whose guest has not run: the instance, which is stopped, is as before. To be called in a change.
 */
export async function settleRevert(instance: MachineInstance): Promise<void> {
  const { recorded } = instance
  const step = recorded.steps.find((each) => each.step === 'revert')
  if (step === undefined) return
  const [, , , , state, text = ''] = step.words
  if (state === RUNS)
    return await recorded.note({
      drop: [step],
      kind: 'snapshot',
      text: 'the machine has ended after its revert',
    })
  const { document, generationId, layers, resets, specification } = InstanceRecord.decode(
    Buffer.from(text, 'base64'),
  )
  const added = recorded.record.layers.filter(({ id }) => !layers.some((layer) => layer.id === id))
  const left = added.map(({ id }) => recorded.step('layer', [`${id}`]))
  const set = { document, generationId, layers, resets, specification }
  await recorded.note({ set, add: left, drop: [step], kind: 'snapshot', text: 'the revert was taken back' })
}

function savedOf(
  document: DocumentRecord | undefined,
  { machine }: Snapshot,
): { readonly document?: DocumentRecord } {
  return document === undefined ? {} : { document: { ...document, saved: machine } }
}

export function snapshotOf({ key, record }: MachineInstance, name: string): Snapshot {
  const found = record.snapshots.find((each) => each.name === name)
  if (found !== undefined) return found
  throw new AgentError('NOT_FOUND', `instance ${key}: snapshot ${name}: not found`)
}

/** Nothing would keep others from a file that the configuration does not have, and layers are on. */
function refuseLost(layers: readonly Layer[], { name, specification }: Snapshot): void {
  const bases = Object.values(specification?.backends ?? {}).map(({ file }) => file?.path)
  const lost = layers.find(({ active, base }) => active && !bases.includes(base))
  if (lost === undefined) return
  const text = `${lost.base}: not in snapshot ${name}, and snapshots are on it, want them removed first (RemoveSnapshot)`
  throw new AgentError('FAILED_PRECONDITION', `${pathOf('backends', lost.backend)}: ${text}`)
}

/** A new layer on each disk of the snapshot. */
async function layersOn({ context, record }: MachineInstance, snapshot: Snapshot): Promise<readonly Layer[]> {
  const added: Layer[] = []
  for (const { backend, layer } of snapshot.disks) {
    const base = baseOf(snapshot, backend)
    const present = layersUpTo(record.layers, layer)
    await checkLayers(context.folder, present)
    const { secret = '' } = snapshot.specification?.backends[backend]?.file?.encryption ?? {}
    const known = record.layers.find((each) => each.base === base)
    const file = { base, qcow2Base: known?.qcow2Base ?? false, secret }
    const id = record.lastLayer + 1 + added.length
    const own = { ...file, backend, sizeBytes: known?.sizeBytes ?? BigInt(await sizeOfBase(file)) }
    added.push({ id, parent: layer, ...own, active: true, usedBytes: 0n })
  }
  // A file that became smaller has not the content of the snapshot.
  for (const layer of added) await checkBase(layer)
  return added
}
