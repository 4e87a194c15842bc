import type { UndoList } from '../../../../base/undo.ts'
import { waitForPartition } from '../../../../hotplug/partition.ts'
import type { StorageDependencies } from '../../driver.ts'
import { openVerity } from './open-verity.ts'
import type { Layer } from './parse-image.ts'

/**
 * The node that a layer is mounted from: its disk, its partition of the disk, or what dm-verity lets through of either,
 * under `name`. Waits for the disk and the partition; `undo` gets what is to be taken back.
 */
export async function layerNode(
  { disk, source, partition, verity }: Layer,
  request: StorageDependencies & { readonly name: string; readonly undo: UndoList },
  signal: AbortSignal,
): Promise<string> {
  const { os, hotplug, name, undo } = request
  const whole = await disk.find(source, request, signal)
  const device = partition === undefined ? whole : await waitForPartition(hotplug, whole, partition, signal)
  return verity === undefined ? device : openVerity(os, { name, device, verity }, undo, signal)
}
