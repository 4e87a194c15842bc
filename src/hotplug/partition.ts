import type { Files } from '../os/files/files.ts'
import { blockNode } from './block-node.ts'
import { readIfThere } from './read-if-there.ts'
import { type HotplugDependencies, type Probe, waitForDevice } from './wait-for-device.ts'

const BLOCK = '/sys/class/block'

/**
 * The node of a partition of a disk that is there, by its number: waited for, since the kernel reads the table after it
 * has shown the disk. Throws INTERNAL after the time-out, or what `signal` is aborted with.
 */
export function waitForPartition(
  dependencies: HotplugDependencies,
  disk: string,
  number: number,
  signal: AbortSignal,
): Promise<string> {
  const { files } = dependencies
  const name = disk.slice(disk.lastIndexOf('/') + 1)
  return waitForDevice(
    dependencies,
    {
      description: `partition ${number} of ${disk}`,
      probe: () => findPartition(files, name, number),
      matches: ({ action, subsystem, devicePath }) =>
        action === 'add' && subsystem === 'block' && devicePath.includes(`/block/${name}/`),
      candidates: async () => (await files.list(`${BLOCK}/${name}`)).filter((each) => each.startsWith(name)),
    },
    signal,
  )
}

/** A partition is a folder in that of its disk, and says its number itself: names differ from disk to disk. */
async function findPartition(files: Files, disk: string, number: number): Promise<Probe<string>> {
  for (const entry of await files.list(`${BLOCK}/${disk}`)) {
    const place = `${BLOCK}/${disk}/${entry}`
    if (!entry.startsWith(disk)) continue
    if ((await readIfThere(files, `${place}/partition`)) === String(number)) return blockNode(files, place)
  }
  return { missing: `${BLOCK}/${disk}/${disk}*/partition that says ${number}` }
}
