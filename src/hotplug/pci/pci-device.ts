import { type Hotplug, waitForDevice } from '../wait-for-device.ts'
import type { PciPath } from './pci-path.ts'
import { locatePciDevice } from './pci-sysfs.ts'

/** Returns the address (`0000:01:03.0`). Needs no driver. Throws INTERNAL after the timeout, or the reason of `signal`. */
export function waitForPciDevice(dependencies: Hotplug, path: PciPath, signal: AbortSignal): Promise<string> {
  const { files, pciBus } = dependencies
  return waitForDevice(
    dependencies,
    {
      description: `a PCI device at PCI path ${path.text}`,
      probe: async () => {
        const location = await locatePciDevice(files, path)
        if ('missing' in location) return location
        const { devicePath } = location
        if ((await files.stat(`/sys${devicePath}`)) === undefined) return { missing: `/sys${devicePath}` }
        return { found: devicePath.slice(devicePath.lastIndexOf('/') + 1) }
      },
      matches: ({ action, subsystem }) =>
        action === 'add' && (subsystem === 'pci' || subsystem === 'pci_bus'),
      candidates: () => pciBus.candidates(),
      rescan: () => pciBus.rescan(),
    },
    signal,
  )
}
