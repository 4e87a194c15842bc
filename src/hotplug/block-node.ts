import type { Files } from '../os/files/files.ts'
import type { Probe } from './wait-for-device.ts'

/**
 * The device node of a disk that sysfs shows at `disk` (`…/block/vdb`). It must be this very disk's: the kernel shows
 * a disk before it makes the node, and a node of an earlier disk may have had the same name.
 */
export async function blockNode(files: Files, disk: string): Promise<Probe<string>> {
  const node = `/dev/${disk.slice(disk.lastIndexOf('/') + 1)}`
  return (await files.isBlockNodeOf(node, disk)) ? { found: node } : { missing: `device node ${node}` }
}
