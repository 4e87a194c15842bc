import type { Files } from '../os/files/files.ts'
import { getBlockNode, readIfPresent } from './sysfs.ts'
import { type Hotplug, type Probe, waitForDevice } from './wait-for-device.ts'

const BLOCK = '/sys/class/block'

/** The kernel shows a disk before it reads the partitions. Throws INTERNAL after the timeout, or the reason of `signal`. */
export function waitForPartition(
  dependencies: Hotplug,
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
      probe: () => getPartition(files, name, number),
      matches: ({ action, subsystem, devicePath }) =>
        action === 'add' && subsystem === 'block' && devicePath.includes(`/block/${name}/`),
      candidates: async () => (await files.list(`${BLOCK}/${name}`)).filter((each) => each.startsWith(name)),
    },
    signal,
  )
}

/** Finds a partition by the number in its sysfs folder, because names differ between kinds of disks. */
async function getPartition(files: Files, disk: string, number: number): Promise<Probe<string>> {
  for (const entry of await files.list(`${BLOCK}/${disk}`)) {
    const folder = `${BLOCK}/${disk}/${entry}`
    if (!entry.startsWith(disk)) continue
    if ((await readIfPresent(files, `${folder}/partition`)) === String(number))
      return getBlockNode(files, folder)
  }
  return { missing: `${BLOCK}/${disk}/${disk}*/partition with the number ${number}` }
}
