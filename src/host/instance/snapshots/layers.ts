import { join } from 'node:path'
import { AgentError } from '../../../base/errors.ts'
import type { Layer, Snapshot } from '../../../gen/microvm/instance/v1/instance.ts'
import type { InstanceRecord } from '../../../gen/microvm/instance/v1/records.ts'
import type { LayerFile } from '../../qemu/parts-host.ts'
import { pathOf } from '../../spec/component-path.ts'
import { nodeNames, type SpecKey, specKey } from '../../spec/spec-key.ts'

/** What a record says of snapshots. */
export type Layers = Pick<InstanceRecord, 'layers' | 'snapshots'>

type LayeredRecord = Pick<InstanceRecord, 'layers' | 'specification'>

/** In an instance's folder; only the daemon can pass it. */
export const LAYERS_FOLDER = 'disks'

export function layerPath(folder: string, id: number): string {
  return join(folder, LAYERS_FOLDER, `${id}.qcow2`)
}

/** The name of a layer's file once its content is in the one below, before it is removed. */
export function mergedPath(folder: string, id: number): string {
  return join(folder, LAYERS_FOLDER, `${id}.merged`)
}

export function layerNode(id: number): string {
  return `layer-${id}`
}

/** The layers from the lowest to `id`; 0 is the disk's own file, which is none. */
export function layersUpTo(layers: readonly Layer[], id: number): readonly Layer[] {
  const layer = layers.find((each) => each.id === id)
  return layer === undefined ? [] : [...layersUpTo(layers, layer.parent), layer]
}

/** The layers on the file at `base`, the one that the guest writes to last. */
function activeLayers(layers: readonly Layer[], base: string): readonly Layer[] {
  const active = layers.find((layer) => layer.active && layer.base === base)
  return active === undefined ? [] : layersUpTo(layers, active.id)
}

/** The layers on a backend's file. */
export function layersOfBackend({ layers, specification }: LayeredRecord, key: string): readonly Layer[] {
  const { file } = specification?.backends[key] ?? {}
  return file === undefined ? [] : activeLayers(layers, file.path)
}

/** QEMU's name of the block node that the disk of a backend uses. */
export function diskNode(record: LayeredRecord, key: string): string {
  const top = layersOfBackend(record, key).at(-1)
  return top === undefined ? nodeNames(specKey(key)).format : layerNode(top.id)
}

/** What QEMU opens on top of the files of backends. */
export function layerFiles(
  record: LayeredRecord,
  folder: string,
): ReadonlyMap<SpecKey, readonly LayerFile[]> {
  const keys = Object.keys(record.specification?.backends ?? {})
  return new Map(
    keys.map((key) => {
      const files = layersOfBackend(record, key).map(({ id }) => ({
        node: layerNode(id),
        path: layerPath(folder, id),
      }))
      return [specKey(key), files] as const
    }),
  )
}

/** The path of the file below the disk of a snapshot. */
export function baseOf({ specification }: Snapshot, backend: string): string {
  return specification?.backends[backend]?.file?.path ?? ''
}

/** What becomes of layers that no snapshot needs. Without `into`, the content goes to the disk's own file. */
export type LayerChange =
  | { readonly kind: 'drop'; readonly layer: Layer }
  | { readonly kind: 'merge'; readonly layer: Layer; readonly into: Layer | undefined }

/**
 * The next change by which the layers become fewer: nothing is kept for a layer without snapshots, unless the guest writes to
 * it, or several layers are on it. Those that are not free are left out.
 */
export function nextChange(
  { layers, snapshots }: Layers,
  isFree: (change: LayerChange) => boolean = () => true,
): LayerChange | undefined {
  const isNeeded = (id: number, base: string) =>
    snapshots.some((snapshot) =>
      snapshot.disks.some(
        ({ backend, layer }) => layer === id && (id !== 0 || baseOf(snapshot, backend) === base),
      ),
    )
  const above = (id: number, base: string) =>
    layers.filter((layer) => layer.parent === id && layer.base === base)
  const unneeded = layers.filter((layer) => !layer.active && !isNeeded(layer.id, layer.base))
  const unused = unneeded.find((layer) => above(layer.id, layer.base).length === 0)
  if (unused !== undefined) return { kind: 'drop', layer: unused }
  for (const layer of unneeded) {
    const [only, ...others] = above(layer.id, layer.base)
    const change = only && ({ kind: 'merge', layer: only, into: layer } as const)
    if (change !== undefined && others.length === 0 && isFree(change)) return change
  }
  for (const base of new Set(layers.map((layer) => layer.base))) {
    const [only, ...others] = above(0, base)
    const change = only && ({ kind: 'merge', layer: only, into: undefined } as const)
    if (change !== undefined && others.length === 0 && !isNeeded(0, base) && isFree(change)) return change
  }
  return undefined
}

/** The record once the change is done. */
export function changed({ layers, snapshots }: Layers, { layer, ...change }: LayerChange): Layers {
  const others = layers.filter(({ id }) => id !== layer.id)
  if (change.kind === 'drop') return { layers: others, snapshots }
  const into = ('into' in change && change.into?.id) || 0
  return {
    layers: others.map((each) => ({
      ...each,
      parent: each.parent === layer.id ? into : each.parent,
      active: each.id === into ? layer.active : each.active,
    })),
    snapshots: snapshots.map((snapshot) => ({
      ...snapshot,
      disks: snapshot.disks.map((disk) => (disk.layer === layer.id ? { ...disk, layer: into } : disk)),
    })),
  }
}

/** Throws FAILED_PRECONDITION for a backend that layers are on: another file, or none, has not what the guest wrote. */
export function refuseLayered(record: LayeredRecord, key: string): void {
  if (layersOfBackend(record, key).length === 0) return
  const text = `${pathOf('backends', key)}: snapshots are on it, want them removed first (RemoveSnapshot)`
  throw new AgentError('FAILED_PRECONDITION', text)
}
