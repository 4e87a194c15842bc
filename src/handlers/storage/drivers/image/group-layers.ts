import type { Storage } from '../../../../gen/agent.ts'
import { isLayer } from './layer-options.ts'

/** What is attached as one: a storage, or the layers of an image in their order. */
export type StorageGroup = readonly [Storage, ...Storage[]]

/** The storages of a request, those that are layers with the first one of their mount point (spec E.3.7). */
export function groupLayers(storages: readonly Storage[]): readonly StorageGroup[] {
  const groups: [Storage, ...Storage[]][] = []
  const images = new Map<string, [Storage, ...Storage[]]>()
  for (const storage of storages) {
    const image = isLayer(storage) ? images.get(storage.mountPoint) : undefined
    if (image !== undefined) {
      image.push(storage)
      continue
    }
    const group: [Storage, ...Storage[]] = [storage]
    groups.push(group)
    if (isLayer(storage)) images.set(storage.mountPoint, group)
  }
  return groups
}
