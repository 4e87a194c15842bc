import { statSync } from 'node:fs'
import { AgentError } from '../../../base/errors.ts'
import { isSameFile, layersOf, nameOf } from '../devices/disk-in-use.ts'
import type { MachineInstance } from '../instance.ts'
import { type LayerChange, layerPath, nextChange } from './layers.ts'

/**
 * The next change by which the layers of the instance become fewer and nobody else sees another disk: nothing is written to a file
 * that layers of clones are on.
 */
export async function nextFreeChange(instance: MachineInstance): Promise<LayerChange | undefined> {
  const saved = await savedUsers(instance)
  return nextChange(instance.record, (change) => userOf(instance, change, saved) === undefined)
}

/** Throws FAILED_PRECONDITION naming who needs the files to which the layers of the instance would be merged. */
export async function refuseUsed(instance: MachineInstance): Promise<void> {
  const saved = await savedUsers(instance)
  const next = nextChange(instance.record)
  if (next !== undefined) refuseChange(instance, next, saved)
}

/** Throws the same for a change. A clone that is saved meanwhile is seen as an instance, or as what it has become. */
export async function refuseWrite(instance: MachineInstance, change: LayerChange): Promise<void> {
  refuseChange(instance, change, new Map())
  refuseChange(instance, change, await savedUsers(instance))
}

function refuseChange(
  instance: MachineInstance,
  change: LayerChange,
  saved: ReadonlyMap<string, string>,
): void {
  const user = userOf(instance, change, saved)
  if (user === undefined) return
  const text = `layer ${change.layer.id}: ${user} is on what is below it, want that removed: then it is merged`
  throw new AgentError('FAILED_PRECONDITION', `instance ${instance.key}: ${text}`)
}

/** Throws FAILED_PRECONDITION for a clone on a disk that another machine here has, too: merges see saved clones in the store only. */
export function refuseAway(instance: MachineInstance): void {
  for (const { base } of instance.record.layers) {
    const isHere = isSameFile(base)
    const other = [...instance.all()].find(
      (each) => each !== instance && layersOf(each).some((its) => isHere(its.base)),
    )
    if (other === undefined) continue
    const text = `${nameOf(other, instance)} is on the same disk, and may write it later, want it in the store`
    throw new AgentError('FAILED_PRECONDITION', `folder: ${text}`)
  }
}

/** Clones that were saved, by the paths of the files below the layers of the instance. */
async function savedUsers({ plugParts, record }: MachineInstance): Promise<ReadonlyMap<string, string>> {
  const users = new Map<string, string>()
  for (const base of new Set(record.layers.map((layer) => layer.base))) {
    const name = await plugParts.moves?.savedOn(base)
    if (name !== undefined) users.set(base, `saved machine ${name}`)
  }
  return users
}

/** Who needs the file to which the change writes; undefined where nobody does. */
function userOf(
  instance: MachineInstance,
  change: LayerChange,
  saved: ReadonlyMap<string, string>,
): string | undefined {
  if (change.kind === 'drop') return undefined
  const { base } = change.layer
  const isUnderWay = instance.clonesUnderWay > 0 ? 'a clone that is being made' : undefined
  // The file of a layer that clones have too has a name in the folder of each.
  if (change.into !== undefined && !isShared(layerPath(instance.context.folder, change.into.id)))
    return undefined
  const isHere = isSameFile(base)
  for (const other of instance.all())
    if (other !== instance && layersOf(other).some(({ base: theirs }) => isHere(theirs)))
      return nameOf(other, instance)
  return saved.get(base) ?? isUnderWay ?? (change.into && 'another machine')
}

function isShared(path: string): boolean {
  return (statSync(path, { throwIfNoEntry: false })?.nlink ?? 1) > 1
}
