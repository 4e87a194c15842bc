import type { Files } from '../os/os.ts'
import type { Uevent } from '../os/uevent.ts'
import { readIfThere } from './read-if-there.ts'
import type { Probe } from './wait-for-device.ts'

/**
 * The device node of a disk that sysfs shows at `disk` (`…/block/vdb`). It must be this very disk's: the kernel shows
 * a disk before it makes the node, and a node of an earlier disk may have had the same name.
 */
export async function blockNode(files: Files, disk: string): Promise<Probe<string>> {
  const node = `/dev/${disk.slice(disk.lastIndexOf('/') + 1)}`
  const [nodeNumbers, numbers] = await Promise.all([
    blockNumbers(files, node),
    readIfThere(files, `${disk}/dev`),
  ])
  return nodeNumbers !== undefined && nodeNumbers === numbers
    ? { found: node }
    : { missing: `device node ${node}` }
}

/** The same for a disk that an event tells, with its numbers. */
export async function namedBlockNode(
  files: Files,
  { deviceName, deviceNumbers }: Uevent,
): Promise<Probe<string>> {
  const node = `/dev/${deviceName}`
  const isThisDisk = deviceNumbers !== '' && (await blockNumbers(files, node)) === deviceNumbers
  return isThisDisk ? { found: node } : { missing: `device node ${node}` }
}

/** `major:minor` of a block device's node. */
async function blockNumbers(files: Files, node: string): Promise<string | undefined> {
  const status = await files.stat(node)
  return status?.kind === 'block' ? `${status.major}:${status.minor}` : undefined
}
