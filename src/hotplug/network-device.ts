import type { Files } from '../os/files/files.ts'
import type { PciPath } from './pci/pci-path.ts'
import { locatePciDevice } from './pci/pci-sysfs.ts'
import { type Hotplug, type Probe, waitForDevice } from './wait-for-device.ts'

/** Returns the name of the interface (`eth1`). Throws INTERNAL after the timeout, or the reason of `signal`. */
export function waitForPciNetworkDevice(
  dependencies: Hotplug,
  path: PciPath,
  signal: AbortSignal,
): Promise<string> {
  const { files, pciBus } = dependencies
  return waitForDevice(
    dependencies,
    {
      description: `a network device at PCI path ${path.text}`,
      probe: () => getNetworkDevice(files, path),
      // A bridge on the way may be new as well, so PCI events match too.
      matches: ({ action, subsystem }) =>
        action === 'add' && (subsystem === 'net' || subsystem.startsWith('pci')),
      candidates: () => pciBus.candidates(),
      rescan: () => pciBus.rescan(),
    },
    signal,
  )
}

/** Finds `<device>/virtioN/net/<name>`, or `<device>/net/<name>` of a card that is not virtio. */
async function getNetworkDevice(files: Files, path: PciPath): Promise<Probe<string>> {
  const location = await locatePciDevice(files, path)
  if ('missing' in location) return location
  const device = `/sys${location.devicePath}`
  const virtio = (await files.list(device)).filter((name) => /^virtio[0-9]+$/.test(name))
  for (const holder of [device, ...virtio.map((name) => `${device}/${name}`)]) {
    const [name] = await files.list(`${holder}/net`)
    if (name !== undefined) return { found: name }
  }
  return { missing: `${device}/virtio*/net/*` }
}
