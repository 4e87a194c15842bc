import type { Files } from '../os/files/files.ts'
import type { PciPath } from './pci/pci-path.ts'
import { locatePciDevice } from './pci/pci-sysfs.ts'
import { getBlockNode } from './sysfs.ts'
import { type Hotplug, type Probe, waitForDevice } from './wait-for-device.ts'

/** Returns the device node (`/dev/vdb`). Throws INTERNAL after the timeout, or the reason of `signal`. */
export function waitForPciBlockDevice(
  dependencies: Hotplug,
  path: PciPath,
  signal: AbortSignal,
): Promise<string> {
  const { files, pciBus } = dependencies
  let knownPath: string | undefined
  return waitForDevice(
    dependencies,
    {
      description: `a block device at PCI path ${path.text}`,
      probe: async (latest) => {
        // Try the disk that the event names first: walking the PCI path takes longer than everything else.
        if (knownPath !== undefined && latest !== undefined && isDiskOf(knownPath, latest.devicePath)) {
          const named = await getBlockNode(files, `/sys${latest.devicePath}`)
          if ('found' in named) return named
        }
        const location = await locatePciDevice(files, path)
        if ('missing' in location) return location
        knownPath = location.devicePath
        return getBlockDevice(files, `/sys${knownPath}`)
      },
      // Until the device's sysfs path is known, any new PCI device may be a bridge on the way. Afterwards only its own
      // block events match; otherwise each of many concurrent waits would probe on every other disk's events.
      matches: ({ action, subsystem, devicePath }) =>
        action === 'add' &&
        (subsystem === 'pci_bus' ||
          (knownPath === undefined
            ? subsystem === 'pci'
            : subsystem === 'block' && devicePath.startsWith(`${knownPath}/`))),
      candidates: () => pciBus.candidates(),
      rescan: () => pciBus.rescan(),
    },
    signal,
  )
}

function isDiskOf(place: string, devicePath: string): boolean {
  return (
    devicePath.startsWith(`${place}/`) &&
    /^\/virtio[0-9]+\/block\/[^/]+$/.test(devicePath.slice(place.length))
  )
}

/** Finds `<device>/virtioN/block/<name>`. Partitions are one folder deeper and never match. */
async function getBlockDevice(files: Files, device: string): Promise<Probe<string>> {
  for (const name of await files.list(device)) {
    if (!/^virtio[0-9]+$/.test(name)) continue
    const [disk] = await files.list(`${device}/${name}/block`)
    if (disk !== undefined) return getBlockNode(files, `${device}/${name}/block/${disk}`)
  }
  return { missing: `${device}/virtio*/block/*` }
}
