import { AgentError } from '../../../base/errors.ts'
import { type Layer, type Snapshot, State } from '../../../gen/microvm/instance/v1/instance.ts'
import type { DocumentRecord } from '../../../gen/microvm/instance/v1/records.ts'
import { pathOf } from '../../spec/component-path.ts'
import type { MachineInstance } from '../instance.ts'
import type { Caller, OwnerCheck } from '../instances.ts'
import { checkFiles } from '../machine/check-files.ts'
import { undoSteps } from '../machine/steps.ts'
import { checkBase, checkLayers, sizeOfBase } from './check-layers.ts'
import { baseOf, layersUpTo } from './layers.ts'
import { makeOverlays } from './overlay-file.ts'
import { below, type Provide } from './take-snapshot.ts'

/** How many reverts and resets with an idempotency key a record names. */
const KEPT_CALLS = 16

interface RevertOptions extends Pick<Caller, 'callKey' | 'isRepeated'> {
  readonly checkOwner: OwnerCheck
  readonly provide: Provide
}

/**
 * Gives the disks the content and the instance the configuration of a snapshot, on new layers: the snapshot stays as it is.
 * A call with an idempotency key does so once. To be called in a change, when no other one is unfinished.
 */
export async function revert(
  instance: MachineInstance,
  name: string,
  { checkOwner, provide, callKey, isRepeated = false }: RevertOptions,
): Promise<void> {
  const { context, record, recorded } = instance
  if (isRepeated && callKey !== undefined && record.resets.includes(callKey)) return
  const snapshot = snapshotOf(instance, name)
  const { specification } = snapshot
  if (specification === undefined) throw new AgentError('INTERNAL', `snapshot ${name}: no configuration`)
  if (record.current !== State.STOPPED)
    throw new AgentError('FAILED_PRECONDITION', `instance ${instance.key}: not stopped, want it stopped`)
  const saved = savedOf(record.document, snapshot)
  // The names of a machine are looked up as at each start, which refuses those that the tenant may not use any more.
  if (saved.document !== undefined) await provide(instance, { ...record, ...saved })
  else await checkOwner(record.properties?.tenant ?? '', specification)
  await checkFiles(specification)
  refuseLost(record.layers, snapshot)
  const added = await layersOn(instance, snapshot)
  const steps = added.map(({ id }) => recorded.step('layer', [`${id}`]))
  const lastLayer = record.lastLayer + added.length
  const text = `the disks go back to snapshot ${name}`
  await recorded.commit({ set: { lastLayer }, add: steps, kind: 'snapshot', text })
  try {
    await makeOverlays(context.folder, added)
    const resets = callKey === undefined ? record.resets : [...record.resets, callKey].slice(-KEPT_CALLS)
    const set = { specification, layers: [...below(record.layers, added), ...added], resets, ...saved }
    await recorded.commit({ set, drop: steps, kind: 'snapshot', text: `snapshot ${name} was restored` })
  } catch (error) {
    const drop = await undoSteps(context, steps)
    const text = `snapshot ${name} was not restored`
    await recorded.note({ drop, kind: 'snapshot', text, frees: true })
    throw error
  }
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
