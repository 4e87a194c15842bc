import type { Files } from '../os/files/files.ts'
import type { PciPath } from './pci-path.ts'
import { locatePciDevice } from './pci-sysfs.ts'
import { type HotplugDependencies, type Probe, waitForDevice } from './wait-for-device.ts'

/**
 * The name (`eth1`) of the network interface of the device at a PCI path, waited for if it is not there yet. Throws
 * INTERNAL after the time-out, or what `signal` is aborted with.
 */
export function waitForPciNetworkDevice(
  dependencies: HotplugDependencies,
  path: PciPath,
  signal: AbortSignal,
): Promise<string> {
  const { files, pciBus } = dependencies
  return waitForDevice(
    dependencies,
    {
      description: `a network device at PCI path ${path.text}`,
      probe: () => findNetworkDevice(files, path),
      // A bridge may be new as well, so more than network events can bring us further.
      matches: ({ action, subsystem }) =>
        action === 'add' && (subsystem === 'net' || subsystem.startsWith('pci')),
      candidates: () => pciBus.candidates(),
      rescan: () => pciBus.rescan(),
    },
    signal,
  )
}

/** Looks for `<device>/virtioN/net/<name>`, and for `<device>/net/<name>` of cards that are no virtio. */
async function findNetworkDevice(files: Files, path: PciPath): Promise<Probe<string>> {
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
