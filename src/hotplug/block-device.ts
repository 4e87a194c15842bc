import type { Files } from '../os/files/files.ts'
import { blockNode } from './block-node.ts'
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
  const { files, pciBus } = dependencies
  let place: string | undefined
  return waitForDevice(
    dependencies,
    {
      description: `a block device at PCI path ${path.text}`,
      probe: async (latest) => {
        // The disk that an event names is looked at first: to walk there would take longer than all the rest.
        if (place !== undefined && latest !== undefined && isDiskOf(place, latest.devicePath)) {
          const named = await blockNode(files, `/sys${latest.devicePath}`)
          if ('found' in named) return named
        }
        const location = await locatePciDevice(files, path)
        if ('missing' in location) return location
        place = location.devicePath
        return findBlockDevice(files, `/sys${place}`)
      },
      // A bridge may be new as well, so until the place is known other PCI devices can bring us further. Then those of
      // other disks do not, for with many waits at once each would look at each; nor does what the kernel tells of this
      // one before it has its disk.
      matches: ({ action, subsystem, devicePath }) =>
        action === 'add' &&
        (subsystem === 'pci_bus' ||
          (place === undefined
            ? subsystem === 'pci'
            : subsystem === 'block' && devicePath.startsWith(`${place}/`))),
      candidates: () => pciBus.candidates(),
      rescan: () => pciBus.rescan(),
    },
    signal,
  )
}

/** Whether a device is the disk of the one at `place`: `<place>/virtioN/block/<name>`. */
function isDiskOf(place: string, devicePath: string): boolean {
  return (
    devicePath.startsWith(`${place}/`) &&
    /^\/virtio[0-9]+\/block\/[^/]+$/.test(devicePath.slice(place.length))
  )
}

/** Looks for `<device>/virtioN/block/<name>`, never a partition: those are one folder deeper. */
async function findBlockDevice(files: Files, device: string): Promise<Probe<string>> {
  for (const name of await files.list(device)) {
    if (!/^virtio[0-9]+$/.test(name)) continue
    const [disk] = await files.list(`${device}/${name}/block`)
    if (disk !== undefined) return blockNode(files, `${device}/${name}/block/${disk}`)
  }
  return { missing: `${device}/virtio*/block/*` }
}
