import type { Files } from '../os/os.ts'
import type { PciPath } from './pci-path.ts'
import { locatePciDevice } from './pci-sysfs.ts'
import { type HotplugDependencies, type Probe, waitForDevice } from './wait-for-device.ts'

/**
 * The device node (`/dev/vdb`) of the virtio-blk device at a PCI path, waited for if it is not there yet. Throws
 * INTERNAL after the time-out, or what `signal` is aborted with.
 */
export function waitForPciBlockDevice(
  dependencies: HotplugDependencies,
  path: PciPath,
  signal: AbortSignal,
): Promise<string> {
  return waitForDevice(
    dependencies,
    {
      description: `a block device at PCI path ${path.text}`,
      probe: () => findBlockDevice(dependencies.files, path),
      // A bridge may be new as well, so more than block events can bring us further.
      concerns: ({ action, subsystem }) =>
        action === 'add' && (subsystem === 'block' || subsystem.startsWith('pci')),
    },
    signal,
  )
}

/** Looks for `<device>/virtioN/block/<name>`, never a partition: those are one folder deeper. */
async function findBlockDevice(files: Files, path: PciPath): Promise<Probe<string>> {
  const location = await locatePciDevice(files, path)
  if ('missing' in location) return location
  const device = `/sys${location.devicePath}`
  for (const name of await files.list(device)) {
    if (!/^virtio[0-9]+$/.test(name)) continue
    for (const disk of await files.list(`${device}/${name}/block`)) {
      const node = `/dev/${disk}`
      if (await isNodeOf(files, node, `${device}/${name}/block/${disk}`)) return { found: node }
      return { missing: `device node ${node}` }
    }
  }
  return { missing: `${device}/virtio*/block/*` }
}

/**
 * Whether the node exists and is this very disk's: the kernel shows a disk in sysfs before it makes the node, and a
 * node of an earlier disk may have had the same name.
 */
async function isNodeOf(files: Files, node: string, disk: string): Promise<boolean> {
  const status = await files.stat(node)
  if (status?.kind !== 'block' || (await files.stat(`${disk}/dev`)) === undefined) return false
  return (await files.readText(`${disk}/dev`)).trim() === `${status.major}:${status.minor}`
}
